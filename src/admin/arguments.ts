import { parseArgs } from 'node:util'
import { nearest } from '../lib/nearest.ts'
import { toPrintable } from '../lib/text.ts'
import { backUp } from './backup.ts'
import { type Operator, type Options, type Work, withDatabase } from './command.ts'
import { createOrg, listOrgs } from './organizations.ts'
import { rotateKey } from './rotate-key.ts'
import { endToken, listTokens, newToken } from './tokens.ts'
import { addUser, listUsers, removeUser, signInLink } from './users.ts'

/** Thrown if the command line is invalid: exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError'
}

const OPTIONS = {
  org: { type: 'string' },
  role: { type: 'string' },
  user: { type: 'string' },
  name: { type: 'string' },
  slug: { type: 'string' },
  expires: { type: 'string' },
  'expires-at': { type: 'string' },
  scope: { type: 'string', multiple: true },
  to: { type: 'string' },
  yes: { type: 'boolean' },
  'reset-password': { type: 'boolean' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

type Command = {
  /** The words, arguments and options of the command, optional ones in brackets. */
  usage: string
  summary: string
  run: Work<Operator>
}

export const COMMANDS: readonly Command[] = [
  {
    usage: 'org create NAME [--slug SLUG]',
    summary: 'Create an organization',
    run: withDatabase(createOrg),
  },
  {
    usage: 'org list',
    summary: 'List all organizations',
    run: withDatabase(listOrgs),
  },
  {
    usage: 'user list [--org SLUG]',
    summary: 'List all users, or the members of an organization',
    run: withDatabase(listUsers),
  },
  {
    usage: 'sign-in-link [--user EMAIL] [--reset-password]',
    summary: 'Make a link that signs a user in once, for 15 minutes. Without --user: the first owner',
    run: withDatabase(signInLink),
  },
  {
    usage: 'user add EMAIL --org SLUG --role owner|admin|member',
    summary: 'Add a member, or change the role of one',
    run: withDatabase(addUser),
  },
  {
    usage: 'user remove EMAIL --org SLUG',
    summary:
      'End a membership: its tokens are revoked, those of MCP servers at their services too, and its runs are cancelled',
    run: withDatabase(removeUser),
  },
  {
    usage: 'token create --user EMAIL --org SLUG --name NAME [--expires DAYS | --expires-at ISO] [--scope SCOPE]...',
    summary: 'Create a token, shown once. Without --scope it has all rights of its user (*)',
    run: withDatabase(newToken),
  },
  {
    usage: 'token list',
    summary: 'List all tokens, newest first',
    run: withDatabase(listTokens),
  },
  {
    usage: 'token revoke ID',
    summary: 'Revoke a token: its next request is rejected',
    run: withDatabase(endToken),
  },
  {
    usage: 'backup FILE',
    summary: 'Copy the SQLite database into a new file, beside a running server',
    run: backUp,
  },
  {
    usage: 'restore FILE',
    summary: 'Replace the SQLite database with a backup, with the server stopped; it then starts paused',
    run: async (operator, args) => (await import('./copies.ts')).restore(operator, args),
  },
  {
    usage: 'mark-copy',
    summary: 'Mark a restored database as a copy: servers that start on it are paused',
    run: withDatabase(async (admin) => (await import('./copies.ts')).markDatabase(admin)),
  },
  {
    usage: 'resume',
    summary: 'End the pause of a backup or copy, also for running servers; cancel the runs that were active in it',
    run: withDatabase(async (admin) => (await import('./copies.ts')).resume(admin)),
  },
  {
    usage: 'media-clean [--yes]',
    summary:
      'List files of this installation without a row in the database; with --yes, move them to the trash for 14 days',
    run: withDatabase(async (...given) => (await import('./media.ts')).clean(...given)),
  },
  {
    usage: 'media-restore ID|all',
    summary: 'Restore a file from the trash, or all files whose rows exist',
    run: withDatabase(async (admin, args) => (await import('./media.ts')).restore(admin, args)),
  },
  {
    usage: 'move --to URL',
    summary: 'Copy the SQLite database into an empty PostgreSQL (postgresql://…), with the server stopped',
    // Imported on demand, because other commands do not need it.
    run: withDatabase(async (...given) => (await import('./move.ts')).move(...given)),
  },
  {
    usage: 'rotate-key',
    summary: 'Change the encryption key to NEW_ENCRYPTION_KEY, or to a new key file, beside a running server',
    run: withDatabase(rotateKey),
  },
]

const HELP = [
  'Usage: npm run admin -- COMMAND [--json]',
  '',
  ...COMMANDS.flatMap(({ usage, summary }) => [`  ${usage}`, `      ${summary}`]),
  '',
  "Commands use the server's database and, apart from restore and move, run beside the server. Give them its environment",
  '(DATA_DIR, DATABASE_URL, ENCRYPTION_KEY, TOKEN_PREFIX; for links PUBLIC_URL, or PORT). --json prints one object;',
  '`npm run -s admin -- …` prints nothing else. Exit codes: 0 success, 1 failure or invalid value, 2 invalid command line.',
].join('\n')

export type Invocation = { command: Command; args: string[]; options: Options; json: boolean }

const find = (positionals: readonly string[]): Command | undefined =>
  COMMANDS.find(({ usage }) => wordsOf(usage).every((word, index) => word === positionals[index]))

function unknownCommand(positionals: string[]): UsageError {
  const help = 'See npm run admin -- --help'
  if (!positionals.length) return new UsageError(`No command. ${help}`)
  const given = positionals.slice(0, 2).join(' ')
  const names = COMMANDS.map(({ usage }) => wordsOf(usage).join(' '))
  const like = nearest(given, names) ?? nearest(positionals[0]!, names)
  const first = nearest(positionals[0]!, new Set(names.map((name) => name.split(' ')[0]!)))
  const family = names.filter((name) => name.startsWith(`${first} `))
  const known = family.length ? `There are ${family.join(', ')}. ` : ''
  return new UsageError(`Unknown command: ${toPrintable(given)}. ${like ? `Did you mean ${like}? ` : known}${help}`)
}

/** Returns the help for one command. */
const helpOf = ({ usage, summary }: Command): string => `Usage: npm run admin -- ${usage} [--json]\n\n${summary}.`

/** Returns the command named by the arguments with its options, or the help that they ask for. */
export function readArguments(argv: string[]): Invocation | string {
  const { values, positionals } = parse(argv)
  const { json = false, help, ...options } = values
  const asksForHelp = positionals[0] === 'help'
  const command = find(asksForHelp ? positionals.slice(1) : positionals)
  if (help || asksForHelp) return command ? helpOf(command) : HELP
  if (!command) throw unknownCommand(positionals)
  const { usage } = command
  const wrong = (problem: string) => new UsageError(`${problem} Usage: ${usage}`)
  const args = positionals.slice(wordsOf(usage).length)
  const needed = usage.replaceAll(OPTIONAL, '')
  const count = needed.replaceAll(OPTION, '').trim().split(/\s+/).length - wordsOf(usage).length
  if (args.length < count) throw wrong('Missing argument.')
  if (args.length > count) {
    const quotes = count ? ' Put quotes around a value with blanks.' : ''
    throw wrong(`Unexpected argument: ${toPrintable(args.at(-1)!)}.${quotes}`)
  }
  const given = Object.keys(options)
  const missing = optionsIn(needed).find((option) => !given.includes(option))
  if (missing) throw wrong(`Missing option: --${missing}.`)
  const unknown = given.find((option) => !optionsIn(usage).includes(option))
  if (unknown) throw wrong(`Unexpected option: --${unknown}.`)
  return { command, args, options, json }
}

/** An optional part of a usage, and an option with its value. */
const OPTIONAL = /\[[^\]]*\](?:\.\.\.)?/g
const OPTION = /--[a-z-]+ \S+/g

const optionsIn = (usage: string): string[] => [...usage.matchAll(/--([a-z-]+)/g)].map(([, name = '']) => name)

/** Returns the words of a command: the lower-case beginning of its usage. */
const wordsOf = (usage: string): string[] => (/^[a-z-]+( [a-z]+)?/.exec(usage)?.[0] ?? '').split(' ')

function parse(argv: string[]) {
  try {
    return parseArgs({ args: argv, options: OPTIONS, allowPositionals: true })
  } catch (error) {
    const isUsage = error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
    if (!isUsage) throw error
    // Node calls a value that begins with a hyphen ambiguous, such as a negative number.
    const [, option] = /^Option '(?:-\w, )?(--[a-z-]+).*(?:argument missing|is ambiguous)/.exec(error.message) ?? []
    if (option) throw new UsageError(`Missing value after ${option}. See npm run admin -- --help`)
    throw new UsageError(`${error.message.split(/\.\s/, 1)[0]?.replace(/\.$/, '')}. See npm run admin -- --help`)
  }
}
