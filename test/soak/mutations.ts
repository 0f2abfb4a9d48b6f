import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { createFolder } from '../support/folder.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const run = promisify(execFile)

/** One thing taken out of one place. */
type Mutation = { kind: Kind; file: string; line: number; was: string; text: string }
type Kind = 'filter' | 'organization' | 'authorization' | 'scope' | 'composite key'
type Outcome = Mutation & { caughtBy: string | null; seconds: number }

/** The matrix, which is to catch all of a kind. */
const MATRIX: Record<Kind, string[]> = {
  filter: ['test/security/isolation.test.ts'],
  organization: ['test/security/isolation.test.ts'],
  authorization: ['test/security/isolation.test.ts'],
  'composite key': ['test/security/isolation.test.ts', '-t', 'the database itself'],
  scope: ['test/security/tokens.test.ts', 'test/rest/scopes.test.ts', 'test/graphql/scopes.test.ts'],
}

/** Who else might notice: what runs do, long after somebody asked for them. */
const OTHERS = [
  ...['test/engine/delegation.test.ts', 'test/engine/approvals.test.ts', 'test/missions', 'test/mcps/runs.test.ts'],
  ...['test/tools', 'test/graphql', 'test/idempotency.test.ts', 'test/trpc', 'test/auth', 'test/rest'],
]

const FILTER = 'listed|reachable|executable|visible|notPrivate|chatsFor|ofMissionFor|onShow|ownSessions'
/** A filter where it is used: a call, with at most a call within its arguments, or the function handed on. */
const CALL = new RegExp(
  `(?<!\\w|(?<!\\.\\.)\\.)(?:(?:service|rows)\\.)?(?:${FILTER})(?:[A-Z]\\w*)?\\((?:[^()]|\\([^()]*\\))*\\)`,
  'g',
)
const HANDED = new RegExp(`(?<![\\w.])(?:service|rows)\\.(?:${FILTER})(?:[A-Z]\\w*)?(?![\\w(])`, 'g')
const DEFINITION = new RegExp(`^export (?:const|function) (?:${FILTER})\\w*`)

/** What is no code, and what only names or defines. */
const isOther = (line: string): boolean =>
  /^\s*(\*|\/\/|\/\*|import\b|export type)/.test(line) || /^\} from /.test(line)

/** Every mutation of a file of src/, a line at a time. */
function mutationsOf(file: string, source: string): Mutation[] {
  const lines = source.split('\n')
  let inFilter = false
  return lines.flatMap((line, index) => {
    if (DEFINITION.test(line)) inFilter = true
    if (line === '') inFilter = false
    if (isOther(line)) return []
    const replace = (kind: Kind, pattern: RegExp, by: string) =>
      [...line.matchAll(pattern)].map((match): Mutation => {
        const changed = line.slice(0, match.index) + by + line.slice(match.index + match[0].length)
        const text = lines.with(index, changed).join('\n')
        return { kind, file, line: index + 1, was: line.trim(), text }
      })
    const isDefined =
      /^(export )?(const|function|async function|export async function) (authorize|permit|requireScope)\b/.test(line)
    return [
      ...(DEFINITION.test(line) && !line.includes('=>') ? [] : replace('filter', CALL, '({})')),
      ...replace('filter', HANDED, '(() => ({}))'),
      ...(inFilter ? replace('organization', /organizationId(: \w+(\.organizationId)?)?,(?! \w+ \}:)/g, '') : []),
      ...(inFilter ? replace('organization', /=> \(\{ organizationId(: [\w.]+)? \}\)/g, '=> ({})') : []),
      ...(isDefined ? [] : replace('authorization', /(?<![\w.])authorize\(/g, '((_: unknown, row: any) => row)(')),
      ...(isDefined ? [] : replace('authorization', /(?<![\w.])permit\(/g, '((row: any, _: unknown) => row)(')),
      ...(isDefined ? [] : replace('scope', /(?<![\w.])requireScope\(/g, '((..._: unknown[]) => {})(')),
    ]
  })
}

/** Every composite reference of the tables as the last migrations leave them. */
function keysOf(file: string, source: string, isLast: (table: string) => boolean): Mutation[] {
  const lines = source.split('\n')
  let table = ''
  return lines.flatMap((line, index) => {
    table = /^CREATE TABLE "(?:new_)?(\w+)"/.exec(line)?.[1] ?? table
    if (!/FOREIGN KEY \("\w*organizationId", ?"\w+"\)/i.test(line) || !isLast(table)) return []
    const without = lines.toSpliced(index, 1)
    // The last one of a table leaves the comma before it.
    if (!line.trimEnd().endsWith(',')) without[index - 1] = without[index - 1]!.replace(/,\s*$/, '')
    return [{ kind: 'composite key', file, line: index + 1, was: `${table}: ${line.trim()}`, text: without.join('\n') }]
  })
}

async function allMutations(): Promise<Mutation[]> {
  const { stdout } = await run('git', ['ls-files', 'src', 'prisma/migrations/sqlite'], { cwd: ROOT })
  const files = stdout.trim().split('\n').sort()
  const sources = await Promise.all(
    files.map(async (file) => [file, await readFile(join(ROOT, file), 'utf8')] as const),
  )
  const last = new Map<string, string>()
  for (const [file, source] of sources) {
    for (const [, table = ''] of source.matchAll(/^CREATE TABLE "(?:new_)?(\w+)"/gm)) last.set(table, file)
  }
  return sources.flatMap(([file, source]) =>
    file.endsWith('.sql')
      ? keysOf(file, source, (table) => last.get(table) === file)
      : file.endsWith('.ts')
        ? mutationsOf(file, source)
        : [],
  )
}

/** A copy of what git knows, with what is made of it. */
async function copyTree(to: string): Promise<void> {
  const { stdout } = await run('git', ['ls-files'], { cwd: ROOT, maxBuffer: 1e8 })
  for (const file of stdout.trim().split('\n')) {
    await mkdir(dirname(join(to, file)), { recursive: true })
    await cp(join(ROOT, file), join(to, file)).catch((error: NodeJS.ErrnoException) => {
      // Deleted, and not committed yet.
      if (error.code !== 'ENOENT') throw error
    })
  }
  await cp(join(ROOT, 'prisma', 'generated'), join(to, 'prisma', 'generated'), { recursive: true })
  await symlink(join(ROOT, 'node_modules'), join(to, 'node_modules'))
}

/** Whether the tests pass there. */
async function passes(tree: string, files: string[]): Promise<boolean> {
  const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs')
  const args = [vitest, 'run', '--config', '.config/vitest.ts', '--project', 'sqlite', '--bail', '1', ...files]
  const env = { ...process.env, SKIP_POSTGRES: '1' }
  return run(process.execPath, args, { cwd: tree, env, maxBuffer: 1e8 }).then(
    () => true,
    () => false,
  )
}

async function attempt(tree: string, mutation: Mutation): Promise<Outcome> {
  const started = Date.now()
  const file = join(tree, mutation.file)
  const before = await readFile(file, 'utf8')
  await writeFile(file, mutation.text)
  try {
    const matrix = MATRIX[mutation.kind]
    const isMissed = await passes(tree, matrix)
    const caughtBy = !isMissed ? 'the matrix' : (await passes(tree, OTHERS)) ? null : 'other tests'
    return { ...mutation, caughtBy, seconds: Math.round((Date.now() - started) / 1_000) }
  } finally {
    await writeFile(file, before)
  }
}

/**
 * Takes every filter, every organization in a filter, every composite key, every authorization and every check of
 * scopes out of a copy of the tree, one at a time, and tells which of them no test misses. Writes bench/mutations.md.
 */
export async function mutations(): Promise<string> {
  const all = await allMutations()
  const outcomes: Outcome[] = []
  await using folder = await createFolder()
  await copyTree(folder.path)
  for (const [kind, files] of Object.entries(MATRIX)) {
    if (!(await passes(folder.path, files))) throw new Error(`The tests of ${kind} fail before anything is changed`)
  }
  for (const mutation of all) {
    const outcome = await attempt(folder.path, mutation)
    outcomes.push(outcome)
    const { kind, file, line, caughtBy, seconds } = outcome
    console.log(`${outcomes.length}/${all.length} ${kind} ${file}:${line} (${seconds} s): ${caughtBy ?? 'NOT CAUGHT'}`)
    await writeFile(join(ROOT, 'bench', 'mutations.md'), report(outcomes, all.length))
  }
  const missed = outcomes.filter(({ caughtBy }) => !caughtBy)
  return `${outcomes.length} taken out, ${outcomes.length - missed.length} noticed`
}

const place = ({ file, line, was }: Outcome) =>
  `\`${file}:${line}\` \`${was.replaceAll('|', '\\|').replaceAll('`', "'")}\``

function report(outcomes: Outcome[], total: number): string {
  const kinds = [...Map.groupBy(outcomes, ({ kind }) => kind)]
  const by = (of: Outcome[], who: string | null) => of.filter(({ caughtBy }) => caughtBy === who)
  const rows = kinds.map(
    ([kind, of]) =>
      `| ${kind} | ${of.length} | ${by(of, 'the matrix').length} | ${by(of, 'other tests').length} | ${by(of, null).length} |`,
  )
  const list = (title: string, of: Outcome[]) =>
    of.length ? [`## ${title}`, '', ...of.map((outcome) => `- ${outcome.kind}: ${place(outcome)}`), ''] : []
  return [
    '# Mutations',
    '',
    `What \`npm run test:soak -- mutations\` found last: ${new Date().toISOString()}, ${outcomes.length} of ${total}.`,
    'Each filter, authorization, check of scopes and composite key was taken out of a copy of the tree, one at a time.',
    '',
    '| taken out | places | caught by the matrix | by other tests | not caught |',
    '|---|---|---|---|---|',
    ...rows,
    '',
    ...list('Not caught', by(outcomes, null)),
    ...list('Caught by other tests only', by(outcomes, 'other tests')),
  ].join('\n')
}
