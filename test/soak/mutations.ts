import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { appendFile, cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { createFolder } from '../support/folder.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const run = promisify(execFile)

/** One thing taken out of one place. */
type Mutation = { kind: Kind; file: string; line: number; was: string; text: string }
type Kind = 'filter' | 'condition' | 'organization' | 'count' | 'authorization' | 'scope' | 'composite key'
/** The test that fails for it; null when none does. */
type Outcome = Omit<Mutation, 'text'> & { caughtBy: string | null }

type Matrix = { files: string[]; tests?: string }

const ISOLATION: Matrix = { files: ['test/security/isolation.test.ts', 'test/security/afterwards.test.ts'] }

/** The matrix, which is to catch all of a kind: its files, and the tests of them that are about it. */
const MATRIX: Record<Kind, Matrix> = {
  filter: ISOLATION,
  condition: ISOLATION,
  organization: ISOLATION,
  count: ISOLATION,
  authorization: ISOLATION,
  scope: { files: ['test/security/tokens.test.ts', 'test/rest/scopes.test.ts', 'test/graphql/scopes.test.ts'] },
  'composite key': { files: ['test/security/isolation.test.ts'], tests: 'the database itself' },
}

/** The tests that are tried first: those that most likely fail. */
function likely({ kind, file }: Mutation): Matrix[] {
  if (MATRIX[kind] !== ISOLATION) return []
  const face = file.includes('graphql') ? 'GraphQL' : 'REST'
  const tests = kind === 'authorization' ? 'changes nothing' : kind === 'count' ? 'counts are' : face
  return [{ files: ISOLATION.files.slice(0, 1), tests }]
}

/** What nothing can catch, by its place: it is there for another reason, or beside another that says the same. */
const EQUIVALENT: Record<string, string> = {
  "src/agents/graphql.ts export const AGENT = rowsOf('Agent', 'Agent', service.reachable, { name: 'Agent', listed: service.listed })":
    'no relation lists agents',
  "src/organizations/graphql.ts const MEMBER = rowsOf<{ organizationId: string; userId: string }>('Member', 'Membership', service.listedMembers, {":
    'members hang on their organization, which is the caller’s',
  'src/approvals/service.ts organizationId: actor.organizationId,':
    'the index begins with it; the key of its execution says the same',
  'src/chats/service.ts organizationId: actor.organizationId,':
    'the index of messages begins with it; the key of their session says the same',
  'src/chats/service.ts FROM "Session" t WHERE t."organizationId" = ${organizationId}':
    'the index of sessions begins with it; the chats are those that the caller can reach',
  'src/db/counting.ts ? Prisma.sql`${name(table)} t WHERE t."organizationId" = ${organizationId} AND ${each.where}`':
    'an index begins with it; the condition of what is counted says the same',
}

const FILTER = 'listed|reachable|executable|visible|notPrivate|chatsFor|ofMissionFor|onShow|ownSessions'
/** A filter where it is used: a call, with at most a call within its arguments, or the function handed on. */
const CALL = new RegExp(
  `(?<!\\w|(?<!\\.\\.)\\.)(?:(?:service|rows)\\.)?(?:${FILTER})(?:[A-Z]\\w*)?\\((?:[^()]|\\([^()]*\\))*\\)`,
  'g',
)
const HANDED = new RegExp(`(?<![\\w.])(?:service|rows)\\.(?:${FILTER})(?:[A-Z]\\w*)?(?![\\w(])`, 'g')
/** What every row meets. Prisma leaves an empty filter out of OR and NOT, as if it were false. */
const ALL = '{ createdAt: { gte: new Date(0) } }'
/** Within a filter: whose it is, who may see it, and what it belongs to. */
const CONDITION =
  /\{ (?:visibility|userId|ownerId|agentId|missionId|agentOrganizationId)(?:: (?:\{[^{}]*\}|[\w.]+))? \}(?!:)/g
/** What a count takes off: rows of another table, each a call or the list of some. */
const HIDDEN = /(?:ofPrivate\w+\(actor\)|inSpaces\(Prisma\.sql`[^`]*`\))/g
const HIDDEN_LIST = /(?:inPrivateSpaces|hiddenChats)\(actor\)/g
const NOTHING = "{ of: 'Agent', where: Prisma.sql`1 = 0`, on: Prisma.sql`1 = 0` }"
const DEFINITION = new RegExp(`^(?:export )?(?:const|function) (?:${FILTER})\\w*`)

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
    const isCondition = inFilter && !line.includes('input.')
    const replace = (kind: Kind, pattern: RegExp, by: string) =>
      [...line.matchAll(pattern)].map((match): Mutation => {
        const changed = line.slice(0, match.index) + by + line.slice(match.index + match[0].length)
        const text = lines.with(index, changed).join('\n')
        return { kind, file, line: index + 1, was: line.trim(), text }
      })
    const isDefined =
      /^(export )?(const|function|async function|export async function) (authorize|permit|requireScope)\b/.test(line)
    return [
      ...(DEFINITION.test(line) && !line.includes('=>') ? [] : replace('filter', CALL, `(${ALL})`)),
      ...replace('filter', HANDED, `(() => (${ALL}))`),
      ...(isCondition ? replace('condition', CONDITION, ALL) : []),
      ...(isCondition ? replace('condition', /(?<=^ *)(?:userId|visibility)(?:: .*)?,$/g, '') : []),
      ...(inFilter ? replace('organization', /organizationId(: \w+(\.organizationId)?)?,(?! \w+ \}:)/g, '') : []),
      ...(inFilter ? replace('organization', /=> \(\{ (?:id: )?organizationId(: [\w.]+)? \}\)/g, '=> ({})') : []),
      ...replace('count', HIDDEN, `(${NOTHING})`),
      ...replace('count', HIDDEN_LIST, `[${NOTHING}]`),
      ...replace('count', /t\."organizationId" = \$\{organizationId\}/g, '1 = 1'),
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

type Report = { testResults: { message: string; assertionResults: { status: string; fullName: string }[] }[] }

/** The first test that fails there; null when all of them pass. */
async function failing(tree: string, { files, tests }: Matrix): Promise<string | null> {
  const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs')
  const output = join(tree, 'report.json')
  const args = ['--config', '.config/vitest.ts', '--project', 'sqlite', '--reporter', 'json', '--outputFile', output]
  const env = { ...process.env, SKIP_POSTGRES: '1' }
  for (const file of files) {
    const chosen = [file, ...(tests ? ['-t', tests] : [])]
    const passed = await run(process.execPath, [vitest, 'run', '--bail', '1', ...args, ...chosen], {
      cwd: tree,
      env,
      maxBuffer: 1e8,
    }).then(
      () => true,
      () => false,
    )
    if (passed) continue
    const { testResults } = JSON.parse(await readFile(output, 'utf8')) as Report
    const [failed] = testResults.flatMap((result) => result.assertionResults.filter((one) => one.status === 'failed'))
    return failed ? failed.fullName : `the setup of ${file}: ${testResults[0]?.message.split('\n', 1)[0]}`
  }
  return null
}

/** What the matrix says without this. */
async function attempt(tree: string, mutation: Mutation): Promise<Outcome> {
  const { text, ...place } = mutation
  const file = join(tree, mutation.file)
  const before = await readFile(file, 'utf8')
  await writeFile(file, text)
  try {
    for (const matrix of [...likely(mutation), MATRIX[mutation.kind]]) {
      const caughtBy = await failing(tree, matrix)
      if (caughtBy) return { ...place, caughtBy }
    }
    return { ...place, caughtBy: null }
  } finally {
    await writeFile(file, before)
  }
}

/** What was caught so far, for a run that was stopped to go on from. */
const STATE = join(tmpdir(), 'muster-mutations.jsonl')

const idOf = ({ file, text }: Mutation): string => createHash('sha256').update(file).update(text).digest('hex')

async function caughtBefore(): Promise<Map<string, string>> {
  const lines = (await readFile(STATE, 'utf8').catch(() => '')).split('\n').filter(Boolean)
  return new Map(lines.map((line) => JSON.parse(line) as [string, string]))
}

/**
 * Takes every filter, every condition and organization in a filter, every composite key, every authorization and every
 * check of scopes out of a copy of the tree, one at a time, and tells which of them no test misses. Writes
 * bench/mutations.md. What was caught is not tried again by the next run if this one is stopped.
 */
export async function mutations(): Promise<string> {
  const all = await allMutations()
  const outcomes: Outcome[] = []
  await using folder = await createFolder()
  await copyTree(folder.path)
  for (const matrix of new Set(Object.values(MATRIX))) {
    const failed = await failing(folder.path, matrix)
    if (failed) throw new Error(`Before anything is changed there fails ${failed}`)
  }
  const before = await caughtBefore()
  for (const mutation of all) {
    const { text: _, ...place } = mutation
    const known = before.get(idOf(mutation))
    const started = Date.now()
    const outcome = known === undefined ? await attempt(folder.path, mutation) : { ...place, caughtBy: known }
    outcomes.push(outcome)
    const { kind, file, line, caughtBy } = outcome
    const took = known === undefined ? `${Math.round((Date.now() - started) / 1_000)} s` : 'before'
    console.log(`${outcomes.length}/${all.length} ${kind} ${file}:${line} (${took}): ${caughtBy ?? 'NOT CAUGHT'}`)
    if (caughtBy) await appendFile(STATE, `${JSON.stringify([idOf(mutation), caughtBy])}\n`)
    await writeFile(join(ROOT, 'bench', 'mutations.md'), report(outcomes, all.length))
  }
  await rm(STATE, { force: true })
  const left = outcomes.filter(({ caughtBy }) => !caughtBy)
  const equivalent = left.filter(reasonOf).length
  return `${outcomes.length} taken out, ${outcomes.length - left.length} caught, ${equivalent} equivalent`
}

const place = ({ file, line, was }: Outcome) =>
  `\`${file}:${line}\` \`${was.replaceAll('|', '\\|').replaceAll('`', "'")}\``

/** Why none catches it, where there is a reason. */
const reasonOf = ({ file, was }: Outcome): string | undefined => EQUIVALENT[`${file} ${was}`]

function report(outcomes: Outcome[], total: number): string {
  const kinds = [...Map.groupBy(outcomes, ({ kind }) => kind)]
  const left = outcomes.filter(({ caughtBy }) => caughtBy === null)
  const missed = left.filter((one) => !reasonOf(one))
  const equivalent = left.filter(reasonOf)
  const count = (of: Outcome[], some: Outcome[]) => of.filter((one) => some.includes(one)).length
  const rows = kinds.map(([kind, of]) => {
    const open = [count(of, equivalent), count(of, missed)] as const
    return `| ${kind} | ${of.length} | ${of.length - open[0] - open[1]} | ${open.join(' | ')} |`
  })
  return [
    '# Mutations',
    '',
    `What \`npm run test:soak -- mutations\` found last: ${new Date().toISOString()}, ${outcomes.length} of ${total}.`,
    'Each filter, condition, authorization, check of scopes and composite key was taken out of a copy of the tree, one',
    'at a time; then the matrix ran, to its first failure.',
    '',
    '| taken out | places | caught | equivalent | not caught |',
    '|---|---|---|---|---|',
    ...rows,
    '',
    ...(missed.length ? ['## Not caught', '', ...missed.map((one) => `- ${one.kind}: ${place(one)}`), ''] : []),
    ...(equivalent.length
      ? ['## Equivalent', '', ...equivalent.map((one) => `- ${place(one)}: ${reasonOf(one)}`), '']
      : []),
    ...kinds.flatMap(([kind, of]) => [
      `## What fails without a ${kind}`,
      '',
      '| taken out | the first test to fail |',
      '|---|---|',
      ...of.flatMap((one) => (one.caughtBy ? [`| ${place(one)} | ${one.caughtBy.replaceAll('|', '\\|')} |`] : [])),
      '',
    ]),
  ].join('\n')
}
