/**
 * Writes the reference pages that come from the code, then checks all documents: links, anchors, paths and code
 * samples. With `--check` it writes nothing, and fails when a page differs from the code.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { checkPages } from './docs/check.ts'
import { generateReference } from './docs/reference.ts'
import { readOptions } from './options.ts'

const root = dirname(import.meta.dirname)
const usage = 'Usage: npm run docs:reference -- [--check]'
const isCheck = readOptions(usage, { options: { check: { type: 'boolean' } } }).values.check
const problems: string[] = []

for (const [name, text] of Object.entries(generateReference())) {
  const path = join(root, 'docs', name)
  if (existsSync(path) && readFileSync(path, 'utf8') === text) continue
  if (isCheck) problems.push(`docs/${name}: the code gives another page: run npm run docs:reference`)
  else writeFileSync(path, text)
}
problems.push(...checkPages(root))

if (problems.length) {
  console.error(problems.join('\n'))
  process.exit(1)
}
