import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { lstat, mkdtemp, readdir, rm } from 'node:fs/promises'
import { isIP } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { badRequest, unavailable } from '../errors.ts'
import { addressesOf } from '../lib/net/addresses.ts'
import { type ProxyFor, proxyVariables } from '../lib/net/proxies.ts'

/** Network options for reaching a repository. */
export type NetworkOptions = { allowPrivate: boolean; proxyFor: ProxyFor }

/** A file of a commit, in git's terms. */
export type Entry = { id: string; path: string; size: number }

/** Total time limit (ms), shorter than the lease of an Idempotency-Key. */
const TIMEOUT = 45_000
/** Maximum number of concurrent clones per process and per organization. */
const MAX_CLONES = 4
const MAX_CLONES_OF_ONE = 2
/** Maximum number of names in a repository. */
const MAX_NAMES = 100_000
const MEBIBYTE = 1024 * 1024
/** Maximum size of a file that git may write: the downloaded pack (bytes). */
const MAX_PACK = 100 * MEBIBYTE
const MAX_MEMORY = 2048 * MEBIBYTE
const MAX_OUTPUT = 64 * MEBIBYTE

/** A shell sets the limits and starts git. Windows has none, so only the time limit applies there. */
const LIMITED = `ulimit -f ${MAX_PACK / 512} || exit 1; ulimit -v ${MAX_MEMORY / 1024} 2>/dev/null; exec git "$@"`

/** No helpers, hooks and redirects; one pack, inflated as a stream if it is large. */
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

/** Ignores the machine's and the operator's own git configuration, never prompts, and permits no other protocol. */
const environment = (home: string, proxy: object) => ({
  ...proxy,
  ...Object.fromEntries(INHERITED.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []))),
  HOME: home,
  XDG_CONFIG_HOME: home,
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_TERMINAL_PROMPT: '0',
  GIT_ALLOW_PROTOCOL: 'https',
})

/** Organizations with clones in progress. */
const cloning: string[] = []

export type Repository = { url: string; branch: string | null; organizationId: string }

/**
 * Reads files of a public repository with a shallow clone of one branch into a temporary folder. The clone has no
 * working tree, so it writes no file of the repository, and runs no hook, filter or submodule. Calls `offer` with each
 * file as its name is read, then `choose` to select the files to read. Returns their contents, and the number of names
 * in `total`. Throws the errors of both callbacks, and 400 with the reason if the repository cannot be read. Throws 503
 * if too many clones are in progress in the process or for the organization.
 */
export async function readRepository(
  { url: address, branch: name, organizationId }: Repository,
  { allowPrivate, proxyFor }: NetworkOptions,
  signal: AbortSignal,
  { offer, choose }: { offer: (entry: Entry) => void; choose: () => Entry[] },
): Promise<{ contents: Buffer<ArrayBuffer>[]; total: number }> {
  const url = checkUrl(address)
  const branch = name === null ? [] : [`--branch=${checkBranch(name)}`]
  // A proxy resolves the name itself; the server's certificate proves its identity.
  const proxy = proxyVariables(proxyFor, url)
  const isChecked = !(proxy.HTTPS_PROXY && allowPrivate)
  const addresses = isChecked ? await addressesOf(url, allowPrivate) : []
  if (!addresses) throw badRequest(BAD_URL, { detail: NOT_PUBLIC })
  const ofThisOne = cloning.filter((other) => other === organizationId).length
  if (cloning.length >= MAX_CLONES || ofThisOne >= MAX_CLONES_OF_ONE)
    throw unavailable(undefined, 'Too many repositories are being cloned at once. Repeat the request in a moment.')
  cloning.push(organizationId)
  const until = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)])
  let folder = ''
  try {
    folder = await mkdtemp(join(tmpdir(), `${FOLDER}${process.pid}-`))
    const config = [...CONFIG, ...pin(url, addresses)].flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const git = (...args: string[]) => readGit({ cwd: folder, proxy }, [...config, ...args], '', until)
    await checkVersion(String(await git('version')))
    const options = ['--bare', '--depth=1', '--single-branch', '--no-tags', '--template=', '--quiet', ...branch]
    await git('clone', ...options, '--', url.href, 'repository')
    const read = (input: string, ...args: string[]) =>
      readGit({ cwd: folder, proxy: {} }, ['--git-dir=repository', ...args], input, until)
    // A missing repository may look like an empty one.
    if (String(await read('HEAD', 'cat-file', '--batch-check')).includes('missing')) throw notCloned('it has no commit')
    const total = await readNames(folder, until, offer)
    const entries = choose()
    const blobs = await read(entries.map(({ id }) => `${id}\n`).join(''), 'cat-file', '--batch')
    return { contents: parseBlobs(entries, blobs), total }
  } finally {
    cloning.splice(cloning.indexOf(organizationId), 1)
    if (folder) await rm(folder, { recursive: true, force: true })
  }
}

/** Prefix of a clone's folder, followed by the process id. */
const FOLDER = 'muster-clone-'

/**
 * Removes the clone folders of dead processes, which `kill -9` leaves behind. Touches only folders of this user.
 * Returns the removed paths.
 */
export async function removeStaleClones(): Promise<string[]> {
  const removed: string[] = []
  const parent = tmpdir()
  for (const name of await readdir(parent)) {
    const [, pid] = /^muster-clone-(\d+)-\w+$/.exec(name) ?? []
    if (pid === undefined || isAlive(Number(pid))) continue
    const folder = join(parent, name)
    const stats = await lstat(folder).catch(() => null)
    if (!stats?.isDirectory() || stats.uid !== process.getuid?.()) continue
    await rm(folder, { recursive: true, force: true })
    removed.push(folder)
  }
  return removed
}

function isAlive(pid: number): boolean {
  // In a container every server has the same id. This process has cloned nothing yet.
  if (pid === process.pid) return cloning.length > 0
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

/** Offers each regular file of the commit incrementally. Returns the number of names. */
async function readNames(folder: string, signal: AbortSignal, offer: (entry: Entry) => void): Promise<number> {
  let total = 0
  let rest = ''
  const decoder = new TextDecoder()
  const args = ['--git-dir=repository', 'ls-tree', '-r', '-z', '-l', '--full-tree', 'HEAD']
  await runGit({ cwd: folder, proxy: {} }, args, '', signal, (piece) => {
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\0')
    rest = lines.pop() ?? ''
    total += lines.length
    if (total > MAX_NAMES) throw notCloned(`it has more than ${MAX_NAMES} files`)
    for (const line of lines) for (const entry of parseEntry(line)) offer(entry)
  })
  return total
}

const BAD_URL = 'Invalid url. Must be the https address of a public repository'
const NOT_PUBLIC =
  'The name of its host is unknown, or leads to a private network. Check the name. The operator can allow private ' +
  'networks with ALLOW_PRIVATE_NETWORK=true.'

/**
 * Parses a repository address so that its parts mean the same to this service, git and curl, and none can be an option.
 */
function checkUrl(text: string): URL {
  const url = URL.parse(text)
  if (!url || /[\x00-\x20\x7f\\]/.test(text))
    throw badRequest(BAD_URL, { detail: 'Send an address like https://github.com/owner/name.git.' })
  const { protocol, hostname, username, password, search, hash } = url
  const isHost = /^(\[[\da-f:]+\]|[a-z\d][\w.-]*)$/.test(hostname)
  if (protocol !== 'https:' || !isHost || username || password || search || hash)
    throw badRequest(BAD_URL, { detail: 'Send an address like https://github.com/owner/name.git.' })
  return url
}

/** Checks a branch name: as `git check-ref-format`, without a leading hyphen. */
function checkBranch(branch: string): string {
  const bad = /^[-/]|(^|\/)\.|\.\.|\/\/|@\{|^@$|[\x00-\x20\x7f~^:?*[\\]|(\/|\.|\.lock)$|\.lock\//
  if (!branch || branch.length > 250 || bad.test(branch))
    throw badRequest('Invalid branch', { detail: 'Send the name of a branch or tag, such as main.' })
  return branch
}

/** Pins git's connections to these addresses, regardless of later name resolution. */
const pin = ({ hostname, port }: URL, addresses: string[]): [string, string][] =>
  !addresses.length || isIP(hostname.replace(/^\[|\]$/g, ''))
    ? []
    : [['http.curloptResolve', `${hostname}:${port || 443}:${addresses.map(bracketed).join(',')}`]]

const bracketed = (address: string) => (isIP(address) === 6 ? `[${address}]` : address)

/** Throws if git is older than the first version that obeys `http.curloptResolve`. */
function checkVersion(text: string): void {
  const [, major, minor] = /(\d+)\.(\d+)/.exec(text) ?? []
  if (Number(major) * 1000 + Number(minor) < 2037) throw new Error(`git 2.37 or later is needed, this is ${text}`)
}

/** Public reasons for git's messages, which may reveal details of this network. */
const REASONS: readonly [RegExp, string][] = [
  [/Remote branch .* not found/, 'there is no such branch'],
  [/not found|could not read Username|Authentication failed|error: 40[134]/, 'there is none, or it is not public'],
  [/error: 30\d|redirect/, 'it has moved; give its present address'],
  // git's message if a subprocess reached a limit or received an invalid pack.
  [/index-pack/, 'it is too large, or not whole'],
]

const notCloned = (reason: string) =>
  badRequest(`Repository could not be cloned: ${reason}`, {
    detail: 'Check its address and branch. Only public repositories can be cloned.',
  })

/** Working directory of git, and its proxy variables. */
type Place = { cwd: string; proxy: object }

/** Returns the whole output of git. */
async function readGit(place: Place, args: string[], input: string, signal: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = []
  await runGit(place, args, input, signal, (piece) => pieces.push(piece))
  return Buffer.concat(pieces)
}

/**
 * Runs git and passes its output on incrementally. The signal, or an error of `receive`, kills it with all its
 * subprocesses.
 */
async function runGit(
  { cwd, proxy }: Place,
  args: string[],
  input: string,
  signal: AbortSignal,
  receive: (piece: Buffer) => void,
): Promise<void> {
  const isWindows = process.platform === 'win32'
  const [program, given] = isWindows ? ['git', args] : ['sh', ['-c', LIMITED, 'sh', ...args]]
  const child = spawn(program, given, { cwd, env: environment(cwd, proxy), detached: !isWindows, stdio: 'pipe' })
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
    let size = 0
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > MAX_OUTPUT) throw notCloned('it is too large')
      receive(chunk)
    }
    const [code] = await closed
    if (signal.aborted) throw notCloned('it took too long')
    if (code === 127) throw new Error(`git cannot be started: ${errors}`)
    if (code !== 0) throw notCloned(REASONS.find(([pattern]) => pattern.test(errors))?.[1] ?? 'it cannot be read')
  } finally {
    signal.removeEventListener('abort', kill)
    kill()
  }
}

/** Parses a line of `ls-tree -z -l` if it is a regular file: no symbolic link and no submodule. */
function parseEntry(line: string): Entry[] {
  const [, id = '', size, path = ''] = /^100\d{3} blob ([0-9a-f]+) +(\d+)\t(.*)$/s.exec(line) ?? []
  return size === undefined ? [] : [{ id, path, size: Number(size) }]
}

/** Parses the output of `cat-file --batch`: for each file a line, its bytes, and a line end. */
function parseBlobs(entries: Entry[], output: Buffer): Buffer<ArrayBuffer>[] {
  let offset = 0
  return entries.map(({ size }) => {
    const begin = output.indexOf('\n', offset) + 1
    offset = begin + size + 1
    return Buffer.from(output.subarray(begin, begin + size))
  })
}
