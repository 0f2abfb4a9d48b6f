import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { isIP } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { badRequest, unavailable } from '../errors.ts'
import { addressesOf } from '../lib/addresses.ts'

export type Repository = { url: string; branch: string | null }

/** A file of a commit, as git names it. */
export type Entry = { id: string; path: string; size: number }

/** For all of it, in milliseconds: less than the lease of an Idempotency-Key. */
const TIMEOUT = 45_000
/** At a time, in one process. */
const MAX_CLONES = 4
const MEBIBYTE = 1024 * 1024
/** The largest file that git may write: the pack that it downloads. */
const MAX_PACK = 100 * MEBIBYTE
const MAX_MEMORY = 2048 * MEBIBYTE
const MAX_OUTPUT = 64 * MEBIBYTE

/** The shell that starts git limits it. Windows has none: there time is the only limit. */
const LIMITED = `ulimit -f ${MAX_PACK / 512} || exit 1; ulimit -v ${MAX_MEMORY / 1024} 2>/dev/null; exec git "$@"`

/** No helpers, hooks and redirects; one pack, which is inflated as a stream where it is large. */
const CONFIG = Object.entries({
  'credential.helper': '',
  'core.hooksPath': '/dev/null',
  'core.bigFileThreshold': '1m',
  'http.followRedirects': 'false',
  'http.lowSpeedLimit': '1000',
  'http.lowSpeedTime': '15',
  'fetch.unpackLimit': '1',
  'pack.threads': '1',
  'gc.auto': '0',
})

const INHERITED = ['PATH', 'SystemRoot', 'GIT_SSL_CAINFO', 'SSL_CERT_FILE', 'SSL_CERT_DIR']

/** Nothing of the machine's or the operator's own configuration, nobody to ask, no other protocol. */
const environment = (home: string) => ({
  ...Object.fromEntries(INHERITED.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []))),
  HOME: home,
  XDG_CONFIG_HOME: home,
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_TERMINAL_PROMPT: '0',
  GIT_ALLOW_PROTOCOL: 'https',
})

let clones = 0

/**
 * Reads files of a public repository: a shallow clone of one branch into a temporary folder, without a working tree, so
 * that nothing of it becomes a file of this machine and no hook, filter or submodule comes into play. `choose` says
 * which of them to read. Their contents, and how much there is in `total`. Throws 400 with the reason why it cannot be, 503
 * when too many are under way.
 */
export async function readRepository(
  repository: Repository,
  allowPrivate: boolean,
  signal: AbortSignal,
  choose: (entries: Entry[]) => Entry[],
): Promise<{ contents: Buffer<ArrayBuffer>[]; total: number }> {
  const url = checkUrl(repository.url)
  const branch = repository.branch === null ? [] : [`--branch=${checkBranch(repository.branch)}`]
  const addresses = await addressesOf(url, allowPrivate)
  if (!addresses) throw badRequest(BAD_URL)
  if (clones >= MAX_CLONES) throw unavailable()
  clones++
  const until = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)])
  let folder = ''
  try {
    folder = await mkdtemp(join(tmpdir(), 'muster-clone-'))
    const config = [...CONFIG, ...pin(url, addresses)].flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const git = (...args: string[]) => runGit(folder, [...config, ...args], '', until)
    await checkVersion(String(await git('version')))
    const options = ['--bare', '--depth=1', '--single-branch', '--no-tags', '--template=', '--quiet', ...branch]
    await git('clone', ...options, '--', url.href, 'repository')
    const read = (input: string, ...args: string[]) => runGit(folder, ['--git-dir=repository', ...args], input, until)
    // What is no repository at all may look like an empty one.
    if (String(await read('HEAD', 'cat-file', '--batch-check')).includes('missing')) throw notCloned('it has no commit')
    const lines = String(await read('', 'ls-tree', '-r', '-z', '-l', '--full-tree', 'HEAD'))
      .split('\0')
      .slice(0, -1)
    const entries = choose(lines.flatMap(parseEntry))
    const blobs = await read(entries.map(({ id }) => `${id}\n`).join(''), 'cat-file', '--batch')
    return { contents: parseBlobs(entries, blobs), total: lines.length }
  } finally {
    clones--
    if (folder) await rm(folder, { recursive: true, force: true })
  }
}

const BAD_URL = 'Invalid url. Must be the https address of a public repository'

/** As a URL, whose parts mean the same to us, to git and to curl; nothing in it can be an option of theirs. */
function checkUrl(text: string): URL {
  const url = URL.parse(text)
  if (!url || /[\x00-\x20\x7f\\]/.test(text)) throw badRequest(BAD_URL)
  const { protocol, hostname, username, password, search, hash } = url
  const isHost = /^(\[[\da-f:]+\]|[a-z\d][\w.-]*)$/.test(hostname)
  if (protocol !== 'https:' || !isHost || username || password || search || hash) throw badRequest(BAD_URL)
  return url
}

/** What `git check-ref-format` allows, and no hyphen first. */
function checkBranch(branch: string): string {
  const bad = /^[-/]|(^|\/)\.|\.\.|\/\/|@\{|^@$|[\x00-\x20\x7f~^:?*[\\]|(\/|\.|\.lock)$|\.lock\//
  if (!branch || branch.length > 250 || bad.test(branch)) throw badRequest('Invalid branch')
  return branch
}

/** That git connects to these addresses, whatever the name stands for when it asks. */
const pin = ({ hostname, port }: URL, addresses: string[]): [string, string][] =>
  isIP(hostname.replace(/^\[|\]$/g, ''))
    ? []
    : [['http.curloptResolve', `${hostname}:${port || 443}:${addresses.map(bracketed).join(',')}`]]

const bracketed = (address: string) => (isIP(address) === 6 ? `[${address}]` : address)

/** An older git takes no notice of `http.curloptResolve`. */
function checkVersion(text: string): void {
  const [, major, minor] = /(\d+)\.(\d+)/.exec(text) ?? []
  if (Number(major) * 1000 + Number(minor) < 2037) throw new Error(`git 2.37 or later is needed, this is ${text}`)
}

/** What becomes of git's own words, which may tell more of this network than a caller should know. */
const REASONS: readonly [RegExp, string][] = [
  [/Remote branch .* not found/, 'there is no such branch'],
  [/not found|could not read Username|Authentication failed|error: 40[134]/, 'there is none, or it is not public'],
  [/error: 30\d|redirect/, 'it has moved; give its present address'],
  // What git says of a part of it that reached a limit, or got a pack that is none.
  [/index-pack/, 'it is too large, or not whole'],
]

const notCloned = (reason: string) => badRequest(`Repository could not be cloned: ${reason}`)

/** What git prints. `signal` kills it with all that it has started. */
async function runGit(cwd: string, args: string[], input: string, signal: AbortSignal): Promise<Buffer> {
  const isWindows = process.platform === 'win32'
  const [program, given] = isWindows ? ['git', args] : ['sh', ['-c', LIMITED, 'sh', ...args]]
  const child = spawn(program, given, { cwd, env: environment(cwd), detached: !isWindows, stdio: 'pipe' })
  const kill = () => {
    if (!child.pid || child.exitCode !== null || child.signalCode !== null) return
    if (isWindows) child.kill()
    else process.kill(-child.pid, 'SIGKILL')
  }
  signal.addEventListener('abort', kill)
  if (signal.aborted) kill()
  const closed = once(child, 'close')
  closed.catch(() => {})
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-4096)
  })
  child.stdin.on('error', () => {}).end(input)
  try {
    const chunks: Buffer[] = []
    let size = 0
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > MAX_OUTPUT) throw notCloned('it is too large')
      chunks.push(chunk)
    }
    const [code] = await closed
    if (signal.aborted) throw notCloned('it took too long')
    if (code === 127) throw new Error(`git cannot be started: ${errors}`)
    if (code !== 0) throw notCloned(REASONS.find(([pattern]) => pattern.test(errors))?.[1] ?? 'it cannot be read')
    return Buffer.concat(chunks)
  } finally {
    signal.removeEventListener('abort', kill)
    kill()
  }
}

/** A line of `ls-tree -z -l`, if it is a regular file: no symbolic link and no submodule. */
function parseEntry(line: string): Entry[] {
  const [, id = '', size, path = ''] = /^100\d{3} blob ([0-9a-f]+) +(\d+)\t(.*)$/s.exec(line) ?? []
  return size === undefined ? [] : [{ id, path, size: Number(size) }]
}

/** The contents in the output of `cat-file --batch`: for each a line, its bytes, and the end of a line. */
function parseBlobs(entries: Entry[], output: Buffer): Buffer<ArrayBuffer>[] {
  let offset = 0
  return entries.map(({ size }) => {
    const begin = output.indexOf('\n', offset) + 1
    offset = begin + size + 1
    return Buffer.from(output.subarray(begin, begin + size))
  })
}
