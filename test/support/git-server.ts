import { execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { dirname, join } from 'node:path'
import { createCertificate } from './certificate.ts'
import { createFolder } from './folder.ts'
import { listen } from './listen.ts'

/**
 * A file's text; a link's target; a commit of another repository; anything at any path, even one that git itself
 * refuses.
 */
export type Content = string | Buffer | { link: string } | { submodule: string }

export type GitServer = AsyncDisposable & {
  /** `https://localhost:<port>` */
  readonly url: string
  readonly port: number
  /** The certificate, for GIT_SSL_CAINFO. */
  readonly caFile: string
  /** Requested paths. */
  readonly requests: string[]
  /** Adds a commit to a branch of a repository, and creates the repository if necessary. */
  commit(repository: string, files: Record<string, Content>, branch?: string): void
  /** Creates a repository without a commit. */
  create(repository: string): string
  /** If set, answers instead of git. */
  instead: RequestListener | null
  /** Delays git's answers until it resolves. */
  hold: Promise<unknown>
}

const IDENTITY = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@b', GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@b' }

/** Real repositories behind git's own `http-backend`, over HTTPS on loopback. */
export async function startGitServer(...names: string[]): Promise<GitServer> {
  const folder = await createFolder()
  const { key, cert } = createCertificate('localhost', ...names)
  const caFile = join(folder.path, 'ca.pem')
  writeFileSync(caFile, cert)
  const env = { PATH: process.env.PATH, HOME: folder.path, GIT_CONFIG_NOSYSTEM: '1', ...IDENTITY }
  const requests: string[] = []

  const git = (repository: string, args: string[], input: string | Buffer = '') =>
    execFileSync('git', ['-C', join(folder.path, repository), ...args], {
      env: { ...env, GIT_DIR: '.' },
      input,
      maxBuffer: 1e9,
    })
      .toString()
      .trim()

  function create(repository: string): string {
    const path = join(folder.path, repository)
    mkdirSync(dirname(path), { recursive: true })
    execFileSync('git', ['init', '--quiet', '--bare', '--initial-branch=main', path], { env })
    return path
  }

  const blobs = new Map<string, string>()

  /** Equal contents are written once. */
  function writeBlob(repository: string, content: string | Buffer): string {
    const key = `${repository} ${createHash('sha256').update(content).digest('hex')}`
    const blob = blobs.get(key) ?? git(repository, ['hash-object', '-w', '--stdin'], content)
    blobs.set(key, blob)
    return blob
  }

  /** Writes a tree part by part, because `mktree` accepts any name of a part. */
  function writeTree(repository: string, files: [path: string[], content: Content][]): string {
    const parts = Map.groupBy(files, ([[first = '']]) => first)
    const lines = [...parts].map(([name, inside]) => {
      const [[path, content]] = inside as [[string[], Content]]
      if (path.length > 1) {
        const tree = writeTree(
          repository,
          inside.map(([[, ...rest], its]) => [rest, its]),
        )
        return `040000 tree ${tree}\t${name}\0`
      }
      if (typeof content === 'object' && 'submodule' in content) return `160000 commit ${content.submodule}\t${name}\0`
      const isLink = typeof content === 'object' && 'link' in content
      return `${isLink ? '120000' : '100644'} blob ${writeBlob(repository, isLink ? content.link : content)}\t${name}\0`
    })
    return git(repository, ['mktree', '-z', '--missing'], lines.join(''))
  }

  function commit(repository: string, files: Record<string, Content>, branch = 'main'): void {
    if (!created.has(repository)) create(repository)
    created.add(repository)
    const tree = writeTree(
      repository,
      Object.entries(files).map(([path, content]) => [path.split('/'), content]),
    )
    git(repository, ['update-ref', `refs/heads/${branch}`, git(repository, ['commit-tree', tree, '-m', 'x'])])
  }
  const created = new Set<string>()

  /** CGI (RFC 3875), as far as git needs it. */
  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { pathname, search } = new URL(req.url ?? '/', 'https://localhost')
    const child = spawn('git', ['http-backend'], {
      env: {
        ...env,
        GIT_PROJECT_ROOT: folder.path,
        GIT_HTTP_EXPORT_ALL: '1',
        PATH_INFO: pathname,
        QUERY_STRING: search.slice(1),
        REQUEST_METHOD: req.method,
        CONTENT_TYPE: req.headers['content-type'] ?? '',
        GIT_PROTOCOL: String(req.headers['git-protocol'] ?? ''),
        HTTP_CONTENT_ENCODING: req.headers['content-encoding'] ?? '',
      },
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    child.stdin.on('error', () => {})
    req.pipe(child.stdin)
    let head = ''
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      if (res.headersSent) {
        await new Promise((written) => res.write(chunk, written))
        continue
      }
      head += chunk.toString('latin1')
      const end = head.indexOf('\r\n\r\n')
      if (end < 0) continue
      const headers = head
        .slice(0, end)
        .split('\r\n')
        .map((line) => line.split(': ', 2) as [string, string])
      const status = headers.find(([name]) => name === 'Status')?.[1] ?? '200'
      res.writeHead(Number(status.slice(0, 3)), headers.filter(([name]) => name !== 'Status').flat())
      res.write(Buffer.from(head.slice(end + 4), 'latin1'))
    }
    res.end()
  }

  const server = createServer({ key, cert }, (req, res) => {
    requests.push(req.url ?? '')
    if (gitServer.instead) gitServer.instead(req, res)
    else void gitServer.hold.then(() => answer(req, res)).catch(() => res.destroy())
  })
  const port = await listen(server)
  const gitServer: GitServer = {
    url: `https://localhost:${port}`,
    port,
    caFile,
    requests,
    commit,
    create,
    instead: null,
    hold: Promise.resolve(),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await folder[Symbol.asyncDispose]()
    },
  }
  return gitServer
}
