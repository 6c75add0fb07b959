/** What is generated, and what is shown, is what there is. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

// From build/tests/.
const ROOT = new URL('../../', import.meta.url);
const text = (file: string): string => readFileSync(new URL(file, ROOT), 'utf8');

test('types and methods are those of openapi.json', () => {
  execFileSync(process.execPath, ['scripts/generate.mjs', '--check'], { cwd: ROOT, stdio: 'inherit' });
});

test('each program in the README is one of the examples, which are run', () => {
  const shown = [...text('README.md').matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code.trim());
  const examples = readdirSync(new URL('examples/', ROOT)).map((file) => text(`examples/${file}`)).join('\n');
  const regions = [...examples.matchAll(/\/\/ #region (\w+)\n(.*?) *\/\/ #endregion/gs)];
  const programs = regions.map(([, , code = '']) => code.replaceAll(/^ {2}/gm, '').trim());
  assert.ok(regions.length > 5);
  for (const program of programs) assert.ok(shown.includes(program), `the README does not show:\n${program}`);
  // The rest is how a client is made.
  assert.equal(shown.length, programs.length + 1);
});

test('the client needs no other package', () => {
  const { dependencies } = JSON.parse(text('package.json'));
  assert.equal(dependencies, undefined);
});
