import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'vite'

type Node = { type: string; [key: string]: unknown }

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null && 'type' in value

/** Returns whether a callee is `warn`, `error` or `fatal` of a log, such as `log.warn` or `deps.log.warn`. */
function isLogging(callee: Node): boolean {
  if (callee.type !== 'MemberExpression') return false
  const [{ name }, object] = [callee.property as { name?: string }, callee.object as Node]
  const owner = object.type === 'MemberExpression' ? (object.property as { name?: string }).name : object.name
  return owner === 'log' && /^(?:warn|error|fatal)$/.test(name ?? '')
}

/** Returns the constant beginning of a text: of a literal, a template or a sum of them; else an empty text. */
function beginningOf(node: Node | undefined): string {
  if (node?.type === 'Literal') return String(node.value)
  if (node?.type === 'TemplateLiteral') return (node.quasis as { value: { cooked: string } }[])[0]?.value.cooked ?? ''
  return node?.type === 'BinaryExpression' ? beginningOf(node.left as Node) + beginningOf(node.right as Node) : ''
}

function* messagesIn(node: Node): Generator<string> {
  if (node.type === 'CallExpression' && isLogging(node.callee as Node))
    yield beginningOf((node.arguments as Node[]).at(-1))
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) yield* messagesIn(child)
  }
}

/** Returns the part of a text by which the page lists it: up to the first colon, semicolon or ellipsis. */
const nameOf = (text: string): string => text.split(/[:;…]/)[0]?.replace(/\.?\s*$/, '') ?? ''

/**
 * Returns the warnings and errors of the server's log that the page does not list, and texts of its columns "Line" that
 * no file logs. Lines whose text is not constant, such as the message of an error, are not compared.
 */
export function checkLogLines(root: string, page: string): string[] {
  const files = globSync('src/**/*.ts', { cwd: root }).filter((file) => !/^src.console/.test(file))
  const sources = files.map((file) => readFileSync(join(root, file), 'utf8'))
  const logged = sources.flatMap((source) => [...messagesIn(parseSync('log.ts', source).program as unknown as Node)])
  const tables = page.split(/^## /m).flatMap((section) => section.split(/^\| Line \|.*$/m).slice(1))
  const cells = tables.flatMap((table) => [...(table.split('\n\n')[0] ?? '').matchAll(/^\| (`[^|]+) \|/gm)])
  const listed = cells.flatMap(([, cell = '']) => [...cell.matchAll(/`([^`]+)`/g)].map(([, text = '']) => nameOf(text)))
  const names = new Set(logged.map(nameOf).filter(Boolean))
  return [
    ...[...names].filter((name) => !listed.includes(name)).map((name) => `it lacks the log line "${name}"`),
    ...listed
      .filter((text) => !names.has(text) && !sources.some((source) => source.includes(text)))
      .map((text) => `no file logs "${text}"`),
  ]
}
