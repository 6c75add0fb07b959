//! The command lines in the documentation, read by the programs' own definitions: what a page tells people to type is accepted.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bc_daemon::cli::Bcd;
use better_compute::cli::Cli;
use clap::CommandFactory as _;
use clap::error::ErrorKind;

/// Blocks whose lines are typed into a shell.
const SHELLS: [&str; 3] = ["sh", "bash", "console"];

#[test]
fn every_command_line_in_the_documentation_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    below(&root.join("docs"), &mut pages);
    let (mut checked, mut refused) = (0, String::new());
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        for line in lines(&text) {
            for words in invocations(&line) {
                checked += 1;
                if let Some(why) = refusal(&words) {
                    let page = page.strip_prefix(root).expect("below the root").display();
                    writeln!(refused, "{page}: {}\n    {why}", words.join(" ")).expect("memory");
                }
            }
        }
    }
    assert!(refused.is_empty(), "{refused}");
    assert!(checked > 50, "only {checked} command lines were found");
}

#[test]
fn command_lines_are_found_in_pipes_lists_and_substitutions_and_wrong_ones_are_refused() {
    let text = "```sh\nA=1 sudo better-compute node list | head   # all\nx=$(better-compute whoami); bcd join \\\n  --token-file -\n```\n\
                ```text\nbetter-compute nonsense\n```\n";
    let found: Vec<_> = lines(text).iter().flat_map(|line| invocations(line)).map(|words| words.join(" ")).collect();
    assert_eq!(found, ["better-compute node list", "better-compute whoami", "bcd join --token-file -"]);
    let refused = |line: &str| invocations(line).first().and_then(|words| refusal(words)).is_some();
    assert!(!refused("better-compute node list --json"));
    assert!(refused("better-compute node lst"));
    assert!(refused("bcd run --confg x"));
}

/// The pages below a folder.
fn below(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            below(&path, pages);
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
}

/// The lines of the blocks that are for a shell; one that ends in a backslash goes on in the next.
fn lines(text: &str) -> Vec<String> {
    let (mut lines, mut within, mut held) = (Vec::new(), false, String::new());
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            within = !within && SHELLS.contains(&language.trim());
        } else if within {
            let line = line.trim().trim_start_matches("$ ");
            match line.strip_suffix('\\') {
                Some(part) => held.push_str(part),
                None => lines.push(std::mem::take(&mut held) + line),
            }
        }
    }
    lines
}

/// The calls of one of the two programs in a line, as words.
fn invocations(line: &str) -> Vec<Vec<String>> {
    let line = line.replace("$(", " ; ").replace('`', " ; ");
    let mut found = Vec::new();
    let words = shlex::split(&line.replace([')', ';'], " ; ")).unwrap_or_default();
    for part in words.split(|word| matches!(word.as_str(), "|" | "||" | "&&" | ";" | "&")) {
        let mut part = part.iter().skip_while(|word| {
            let name = word.split('=').next().unwrap_or_default();
            *word == "sudo" || (word.contains('=') && name.chars().all(|it| it.is_ascii_uppercase() || it == '_'))
        });
        let Some(program) = part.next() else { continue };
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        if matches!(program.as_str(), "better-compute" | "bcd") {
            let rest = part.take_while(|word| !word.starts_with(['>', '<', '#']) && *word != "2>&1").cloned();
            found.push(std::iter::once(program).chain(rest).collect());
        }
    }
    found
}

/// Why a program would not take a call.
fn refusal(words: &[String]) -> Option<String> {
    let command = if words[0] == "bcd" { Bcd::command() } else { Cli::command() };
    let error = command.try_get_matches_from(words).err()?;
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    (!is_help).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}
