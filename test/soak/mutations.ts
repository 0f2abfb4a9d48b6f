import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { appendFile, cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { createFolder } from '../support/folder.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const run = promisify(execFile)

/** The removal of one check at one place. */
type Mutation = { kind: Kind; file: string; line: number; was: string; text: string }
type Kind = 'filter' | 'condition' | 'organization' | 'count' | 'authorization' | 'scope' | 'composite key'
/** The first test that fails for it, or null. */
type Outcome = Omit<Mutation, 'text'> & { caughtBy: string | null }

type Matrix = { files: string[]; tests?: string }

const ISOLATION: Matrix = { files: ['test/security/isolation.test.ts', 'test/security/afterwards.test.ts'] }

/** The tests that must catch each kind: their files and titles. */
const MATRIX: Record<Kind, Matrix> = {
  filter: ISOLATION,
  condition: ISOLATION,
  organization: ISOLATION,
  count: ISOLATION,
  authorization: ISOLATION,
  scope: {
    files: [
      ...['test/security/tokens.test.ts', 'test/rest/scopes.test.ts', 'test/graphql/scopes.test.ts'],
      ...['test/protocols/matrix.test.ts', 'test/protocols/a2a.test.ts'],
    ],
  },
  'composite key': { files: ['test/security/isolation.test.ts'], tests: 'the database itself' },
}

/** Tests that run first, because they fail most often. */
function likely({ kind, file }: Mutation): Matrix[] {
  if (MATRIX[kind] !== ISOLATION) return []
  const api = file.includes('graphql') ? 'GraphQL' : 'REST'
  const tests = kind === 'authorization' ? 'changes nothing' : kind === 'count' ? 'totals count' : api
  return [{ files: ISOLATION.files.slice(0, 1), tests }]
}

/** Mutations that no test can catch, by place, with the reason: the code serves another purpose or is redundant. */
const EQUIVALENT: Record<string, string> = {
  "src/agents/graphql.ts export const AGENT = rowsOf('Agent', 'Agent', service.reachable, { name: 'Agent', listed: service.listed })":
    'no relation lists agents',
  "src/organizations/graphql.ts const MEMBER = rowsOf<{ organizationId: string; userId: string }>('Member', 'Membership', service.listedMembers, {":
    'members belong to their organization, which is the caller’s',
  'src/approvals/service.ts organizationId: actor.organizationId,':
    'the index begins with it; the key of its execution says the same',
  'src/chats/service.ts organizationId: actor.organizationId,':
    'the index of messages begins with it; the key of their session says the same',
  'src/chats/service.ts FROM "Session" t WHERE t."organizationId" = ${organizationId}':
    'the index of sessions begins with it; the chats are those that the caller can reach',
  'src/db/counting.ts ? Prisma.sql`${name(table)} t WHERE t."organizationId" = ${organizationId} AND ${each.where}`':
    'an index begins with it; the condition of the count says the same',
}

const FILTER = 'listed|reachable|executable|visible|notPrivate|chatsFor|ofMissionFor|publiclyVisible|ownSessions'
/** A use of a filter: a call, with at most one call within its arguments, or the function itself. */
const CALL = new RegExp(
  `(?<!\\w|(?<!\\.\\.)\\.)(?:(?:service|rows)\\.)?(?:${FILTER})(?:[A-Z]\\w*)?\\((?:[^()]|\\([^()]*\\))*\\)`,
  'g',
)
const HANDED = new RegExp(`(?<![\\w.])(?:service|rows)\\.(?:${FILTER})(?:[A-Z]\\w*)?(?![\\w(])`, 'g')
/** A condition that every row meets. Prisma omits an empty filter from OR and NOT, as if it were false. */
const ALL = '{ createdAt: { gte: new Date(0) } }'
/** Conditions of a filter: owner, visibility, and references. */
const CONDITION =
  /\{ (?:visibility|userId|ownerId|agentId|missionId|agentOrganizationId)(?:: (?:\{[^{}]*\}|[\w.]+))? \}(?!:)/g
/** The subtracted part of a count: rows of another table, as a call or a list of calls. */
const HIDDEN = /(?:ofPrivate\w+\(actor\)|inSpaces\(Prisma\.sql`[^`]*`\))/g
const HIDDEN_LIST = /(?:inPrivateSpaces|hiddenChats)\(actor\)/g
const NOTHING = "{ of: 'Agent', where: Prisma.sql`1 = 0`, on: Prisma.sql`1 = 0` }"
const DEFINITION = new RegExp(`^(?:export )?(?:const|function) (?:${FILTER})\\w*`)

/** Lines without code, and lines that only name or define something. */
const isOther = (line: string): boolean =>
  /^\s*(\*|\/\/|\/\*|import\b|export type)/.test(line) || /^\} from /.test(line)

/** Lists every mutation of a file of src/, line by line. */
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

/** Lists every composite reference of the tables after the last migration. */
function keysOf(file: string, source: string, isLast: (table: string) => boolean): Mutation[] {
  const lines = source.split('\n')
  let table = ''
  return lines.flatMap((line, index) => {
    table = /^CREATE TABLE "(?:new_)?(\w+)"/.exec(line)?.[1] ?? table
    if (!/FOREIGN KEY \("\w*organizationId", ?"\w+"\)/i.test(line) || !isLast(table)) return []
    const without = lines.toSpliced(index, 1)
    // Removing the last one of a table requires the comma before it to go.
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

/** Copies the files that git tracks, with the generated ones. */
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

/** Returns the first failing test, or null if all pass. */
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

/** Runs the matrix for this mutation. */
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

/** Earlier results, so that an interrupted run can continue. */
const STATE = join(tmpdir(), 'muster-mutations.jsonl')

const idOf = ({ file, text }: Mutation): string => createHash('sha256').update(file).update(text).digest('hex')

async function caughtBefore(): Promise<Map<string, string>> {
  const lines = (await readFile(STATE, 'utf8').catch(() => '')).split('\n').filter(Boolean)
  return new Map(lines.map((line) => JSON.parse(line) as [string, string]))
}

/**
 * Removes every filter, condition, organization, composite key, authorization and check of scopes from a copy of the
 * tree, one at a time, and lists the removals that no test catches. Writes bench/mutations.md. An interrupted run
 * continues after the mutations that were caught.
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
  return `${outcomes.length} removed, ${outcomes.length - left.length} caught, ${equivalent} equivalent`
}

const place = ({ file, line, was }: Outcome) =>
  `\`${file}:${line}\` \`${was.replaceAll('|', '\\|').replaceAll('`', "'")}\``

/** The reason why no test catches it, if one is known. */
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
    `Results of \`npm run test:soak -- mutations\`: ${new Date().toISOString()}, ${outcomes.length} of ${total}.`,
    'The test removes each filter, condition, authorization, check of scopes and composite key from a copy of the tree,',
    'one at a time, and runs the matrix to its first failure.',
    '',
    '| removed | places | caught | equivalent | not caught |',
    '|---|---|---|---|---|',
    ...rows,
    '',
    ...(missed.length ? ['## Not caught', '', ...missed.map((one) => `- ${one.kind}: ${place(one)}`), ''] : []),
    ...(equivalent.length
      ? ['## Equivalent', '', ...equivalent.map((one) => `- ${place(one)}: ${reasonOf(one)}`), '']
      : []),
    ...kinds.flatMap(([kind, of]) => [
      `## First failures without a ${kind}`,
      '',
      '| removed | the first test to fail |',
      '|---|---|',
      ...of.flatMap((one) => (one.caughtBy ? [`| ${place(one)} | ${one.caughtBy.replaceAll('|', '\\|')} |`] : [])),
      '',
    ]),
  ].join('\n')
}
