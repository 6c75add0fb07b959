// Writes what is generated from the API's own description: src/api.ts, its types, and src/methods.ts, its methods.
//
//     npm run generate                            from openapi.json as it is
//     npm run generate -- http://127.0.0.1:7070   from a server, whose description becomes openapi.json
//
// With `--check` nothing is written, and what is out of date fails.

import { readFile, writeFile } from 'node:fs/promises';
import openapi, { astToString } from 'openapi-typescript';

const words = process.argv.slice(2);
const isCheck = words.includes('--check');
const url = words.find((word) => !word.startsWith('--'));
const at = (file) => new URL(`../${file}`, import.meta.url);
const stale = [];

async function put(file, text) {
  const was = await readFile(at(file), 'utf8').catch(() => '');
  if (was === text) return;
  if (isCheck) stale.push(file);
  else await writeFile(at(file), text);
}

async function described() {
  if (url === undefined) return JSON.parse(await readFile(at('openapi.json'), 'utf8'));
  const answer = await fetch(`${url}/v1/openapi.json`);
  if (!answer.ok) throw new Error(`${url} answers with HTTP ${answer.status}`);
  const document = await answer.json();
  await put('openapi.json', `${JSON.stringify(document, null, 2)}\n`);
  return document;
}

/** The API leaves out what is absent and answers no null in its place, so an optional field is there, or it is not. */
function withoutNull(value, isOptional = false) {
  if (Array.isArray(value)) return value.map((item) => withoutNull(item));
  if (value === null || typeof value !== 'object') return value;
  const fields = Object.fromEntries(Object.entries(value).map(([name, field]) => [name, withoutNull(field)]));
  if (typeof fields.properties === 'object') {
    const isNeeded = (name) => (fields.required ?? []).includes(name);
    const each = Object.entries(value.properties).map(([name, field]) => [name, withoutNull(field, !isNeeded(name))]);
    fields.properties = Object.fromEntries(each);
  }
  const isNull = (schema) => schema === 'null' || schema?.type === 'null';
  for (const list of isOptional ? ['type', 'oneOf'] : []) {
    if (Array.isArray(fields[list])) fields[list] = fields[list].filter((it) => !isNull(it));
  }
  return fields;
}

/** Every method's failures are the same, an `ErrorBody`, so its types are about the answers alone. */
function withoutFailures(document) {
  for (const operations of Object.values(document.paths)) {
    for (const operation of Object.values(operations)) {
      const { responses } = operation;
      operation.responses = Object.fromEntries(Object.entries(responses).filter(([status]) => status < '300'));
    }
  }
  return document;
}

/** The methods that take JSON, whether a tenant is a field of theirs, and whether they answer page by page. */
function methods(document) {
  const found = [];
  for (const [path, { post }] of Object.entries(document.paths)) {
    const content = post?.requestBody?.content;
    if (post === undefined || (content !== undefined && content['application/json'] === undefined)) continue;
    const named = content?.['application/json'].schema.$ref?.split('/').pop();
    const fields = document.components.schemas[named]?.properties ?? {};
    const has = `{ tenant: ${'tenantId' in fields}, pages: ${'cursor' in fields} }`;
    found.push(`  '${path.slice('/v1/'.length)}': ${has},`);
  }
  return found.sort().join('\n');
}

const document = await described();
const types = astToString(await openapi(withoutFailures(withoutNull(document)), { alphabetize: true, defaultNonNullable: false }));
const head = '// Generated from openapi.json by `npm run generate`. What is written here by hand is lost.\n\n';
await put('src/api.ts', head + types);
await put(
  'src/methods.ts',
  `${head}/** Every method that takes and answers JSON: whether it takes a tenant, and whether it answers pages. */\nexport const METHODS = {\n${methods(document)}\n} as const;\n`,
);
if (stale.length > 0) {
  console.error(`out of date: ${stale.join(', ')}; run \`npm run generate\``);
  process.exitCode = 1;
}
