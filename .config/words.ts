/**
 * Checks that comments, documents, descriptions of the API and test titles are plain English (CONTRIBUTING.md,
 * "English"). Prints the share of five words that stand for a missing subject, and fails when a group has more than the
 * maximum.
 */
import { globSync, readFileSync } from 'node:fs'
import { parseSync } from 'vite'

const WORDS = /\b(what|whoever|nobody|somebody|told)\b/gi
/** Maximum number of these words per 1,000 words. */
const MAX_SHARE = 3
/** Maximum length of a test title (characters). */
const MAX_TITLE = 90
/** Below this number of words a group has too few words for a share (words). */
const MIN_WORDS = 300

type Text = { file: string; text: string }
type Node = { type: string; [key: string]: unknown }

const normalize = (paths: string[]) => paths.map((path) => path.replaceAll('\\', '/'))
const sources = normalize(globSync(['{src,test,bench,examples}/**/*.{ts,tsx}', '.config/**/*.{ts,js}']))
const documents = normalize(globSync(['*.md', '{docs,examples,test,src,bench,.github}/**/*.md'])).filter(
  (path) => !path.startsWith('docs/spec/'),
)

const groupOf = (file: string) => {
  if (file.endsWith('.md')) return 'documents'
  const [, group] = /^(src\/executions\/engine\/\w+|src\/\w+|test\/\w+|bench|\.config)\//.exec(file) ?? []
  return group ?? file.replace(/\/.*/, '')
}

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null && 'type' in value

/** Returns whether a callee is `test`, `it` or `describe`, also with `.each(…)`, `.skipIf(…)` and the like. */
function isTest(callee: Node): boolean {
  if (callee.type === 'Identifier') return /^(test|it|describe)$/.test(String(callee.name))
  const inner = callee.type === 'MemberExpression' ? callee.object : callee.callee
  return isNode(inner) && isTest(inner)
}

function* titlesIn(node: Node): Generator<string> {
  if (node.type === 'CallExpression' && isTest(node.callee as Node)) {
    const [title] = node.arguments as Node[]
    if (typeof title?.value === 'string') yield title.value
    if (title?.type === 'TemplateLiteral') {
      yield (title.quasis as { value: { cooked: string } }[]).map(({ value }) => value.cooked).join('…')
    }
  }
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) yield* titlesIn(child)
  }
}

const texts: Text[] = documents.map((file) => ({
  file,
  text: readFileSync(file, 'utf8').replace(/^```.*?^```/gms, ''),
}))
const schema = 'schema.graphql'
const descriptions = readFileSync(schema, 'utf8').matchAll(/"""(.*?)"""/gs)
texts.push({ file: schema, text: [...descriptions].map(([, text]) => text).join('\n') })
const problems: string[] = []
for (const file of sources) {
  const { comments, program } = parseSync(file, readFileSync(file, 'utf8'))
  texts.push({ file, text: comments.map(({ value }) => value).join('\n') })
  if (!/^(test|bench)\//.test(file)) continue
  for (const title of titlesIn(program as unknown as Node)) {
    if (title.length > MAX_TITLE)
      problems.push(`${file}: this test title has more than ${MAX_TITLE} characters: ${title}`)
  }
}

const rows = [...Map.groupBy(texts, ({ file }) => groupOf(file))].sort(([a], [b]) => (a < b ? -1 : 1))
for (const [group, members] of rows) {
  const all = members.map(({ text }) => text).join('\n')
  const words = all.match(/[\p{L}\p{N}'’-]+/gu)?.length ?? 0
  const found = all.match(WORDS)?.length ?? 0
  const share = (1000 * found) / Math.max(words, MIN_WORDS)
  console.log(`${group.padEnd(36)} ${String(words).padStart(6)} words ${share.toFixed(1).padStart(5)} per 1,000`)
  if (share > MAX_SHARE) {
    const where = members.filter(({ text }) => text.search(WORDS) !== -1).map(({ file }) => file)
    problems.push(
      `${group}: "what", "whoever", "nobody", "somebody" and "told" stand ${share.toFixed(1)} times in 1,000 words, at most ${MAX_SHARE} are allowed. Name the subject instead: ${where.join(', ')}`,
    )
  }
}

if (problems.length) {
  console.error(problems.join('\n'))
  process.exit(1)
}
