import { createHash } from 'node:crypto'
import { accessSync, constants, statSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import type { Deps } from '../deps.ts'
import { hasChanges } from '../lib/changes.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { toBase62 } from '../lib/id.ts'
import type { DeclaredProgram, DeclaredServer } from '../lib/mcp-config.ts'
import { onceDone } from '../lib/once.ts'
import { findBySlug } from '../organizations/service.ts'
import { type Settings, SettingsError } from '../settings.ts'
import type { McpClient } from './client/client.ts'
import { UnreachableServer } from './client/unreachable.ts'
import type { ConnectFor } from './connect.ts'
import { secretsOf } from './declared-secrets.ts'
import type { Programs } from './programs/programs.ts'
import { textOf } from './rows.ts'

// MCP servers that the operator declares in MCP_CONFIG (contract-2.md section 2.12).

export type OperatorServers = {
  /**
   * Returns the declaration of a server. Throws an {@link UnreachableServer} if this process has none. Runs that resume
   * at the start wait for {@link OperatorServers.declare}.
   */
  find(mcpId: string): Promise<DeclaredServer>
  /** Connects to a program. Throws like `connect`. */
  connect(
    mcpId: string,
    program: DeclaredProgram,
    run: Pick<ConnectFor, 'spaceId' | 'isWanted'>,
    signal: AbortSignal,
  ): Promise<McpClient>
  /** Writes the declared servers into the database. Servers of earlier declarations become inactive. */
  declare(): Promise<void>
  stop(): Promise<void>
}

/**
 * Creates the servers of MCP_CONFIG. Throws a {@link SettingsError} if a program does not exist, so that the operator
 * notices it at the start.
 */
export function createOperatorServers(deps: Pick<Deps, 'settings' | 'db' | 'clock' | 'log'>): OperatorServers {
  const { settings, log } = deps
  checkPrograms(settings)
  const declared = new Map<string, DeclaredServer>()
  const ready = Promise.withResolvers<void>()
  let programs: Programs | undefined
  // Imported on demand, because the import would dominate the start-up time.
  const open = onceDone(async () => {
    const { createPrograms } = await import('./programs/programs.ts')
    programs = createPrograms(log)
    return programs
  })
  return {
    async find(mcpId) {
      await ready.promise
      const server = declared.get(mcpId)
      if (server) return server
      throw new UnreachableServer('the operator has removed or disabled it (MCP_CONFIG)')
    },
    async connect(mcpId, program, { spaceId, isWanted }, signal) {
      const onFailure = (tool: string, reason: string) =>
        log.warn({ mcpId, tool, reason }, 'a call to an MCP server failed')
      const { connect } = await open()
      return connect({ mcpId, spaceId, program, secrets: secretsOf(program), isWanted, onFailure }, signal)
    },
    async declare() {
      try {
        const servers = await resolve(deps)
        for (const { id, server } of servers) if (!server.disabled) declared.set(id, server)
        await write(deps, servers)
      } finally {
        ready.resolve()
      }
    },
    stop: async () => programs?.stop(),
  }
}

/** Returns whether a path is that of an executable file. */
function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/** The path that the C library searches for a process without PATH. */
const DEFAULT_PATH = '/bin:/usr/bin'

/** Throws a {@link SettingsError} that names each declared program that does not exist. */
function checkPrograms({ MCP_CONFIG }: Settings): void {
  // On Windows the ending of a program's name may be absent.
  if (process.platform === 'win32') return
  const problems = MCP_CONFIG.flatMap((server) => {
    if (server.kind !== 'program' || server.disabled) return []
    const { name, command, env } = server
    const place = `MCP_CONFIG: mcpServers.${name}.command`
    if (isAbsolute(command)) {
      return isExecutable(command)
        ? []
        : `${place}: ${command} is no executable file: install the program or correct the path`
    }
    const folders = (env.PATH ?? DEFAULT_PATH).split(':')
    if (folders.some((folder) => isExecutable(join(folder, command)))) return []
    const path =
      env.PATH === undefined
        ? 'env has no PATH, and the one of this service is not inherited'
        : 'it is not on the PATH of env'
    return `${place}: ${command} is not found (${path}): set PATH in env, or write the absolute path of the program`
  })
  if (problems.length)
    throw new SettingsError(`Invalid configuration:\n${problems.map((line) => `  ${line}`).join('\n')}`)
}

/** A declared server of one organization. */
type Declared = { id: string; organizationId: string; server: DeclaredServer }

/**
 * Returns the id of a declared server. It is the same on every server and after every start, so that attachments to
 * agents and spaces stay.
 */
function idOf(organizationId: string, name: string): string {
  const digest = createHash('sha256')
    .update(JSON.stringify(['operator', organizationId, name]))
    .digest()
  return Array.from(digest.subarray(0, 22), (byte) => toBase62(byte % 62, 1)).join('')
}

/** Finds the organizations of the declared servers. Warns about unknown ones. */
async function resolve({
  db,
  clock,
  settings,
  log,
}: Pick<Deps, 'settings' | 'db' | 'clock' | 'log'>): Promise<Declared[]> {
  const now = clock.now()
  if (!settings.MCP_CONFIG.length) return []
  const first = await db.organization.findFirst({
    orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
    select: { id: true },
  })
  const found: Declared[] = []
  for (const server of settings.MCP_CONFIG) {
    for (const slug of new Set(server.organizations ?? [null])) {
      const organizationId = slug === null ? first?.id : await findBySlug(db, slug, now)
      if (organizationId) found.push({ id: idOf(organizationId, server.name), organizationId, server })
      else {
        const advice = 'create the organization and start again, or correct MCP_CONFIG'
        log.warn(
          { server: server.name, organization: slug },
          `no organization has the slug of a declared MCP server: ${advice}`,
        )
      }
    }
  }
  return [...new Map(found.map((each) => [each.id, each])).values()]
}

/**
 * Returns the columns of a declared server. Neither its program nor its headers and path are stored: they are secret.
 */
function columnsOf(server: DeclaredServer) {
  const { name, description } = server
  const place =
    server.kind === 'program'
      ? { url: `stdio:${encodeURIComponent(name)}`, transport: 'stdio' }
      : { url: `${new URL(server.url).origin}/`, transport: server.transport }
  const named = { mcpType: name, name, description, ...place }
  return { ...named, ...textOf(named), isActive: !server.disabled, operatorModes: server.permissions }
}

/** Writes the rows. Several servers may do so at once: the first insert wins, and equal rows are not written again. */
async function write(
  { db, clock, log }: Pick<Deps, 'db' | 'clock' | 'log'>,
  declared: readonly Declared[],
): Promise<void> {
  const now = clock.now()
  const ids = declared.map(({ id }) => id)
  const known = ids.length ? await db.mcpServer.findMany({ where: { id: { in: ids } } }) : []
  for (const { id, organizationId, server } of declared) {
    const columns = columnsOf(server)
    const row = known.find((each) => each.id === id)
    if (row) {
      if (hasChanges(row, columns))
        await db.mcpServer.updateMany({ where: { id }, data: { ...columns, updatedAt: now } })
      continue
    }
    const where = { organizationId, role: 'owner' as const }
    const owner = await db.membership.findFirst({ where, orderBy: { createdAt: 'asc' }, select: { userId: true } })
    if (!owner) {
      log.warn(
        { server: server.name, organizationId },
        'a declared MCP server needs an owner of its organization: add one and start again',
      )
      continue
    }
    const data = {
      id,
      organizationId,
      ownerId: owner.userId,
      ...columns,
      source: 'operator',
      headers: {},
      permissions: [],
      writtenBy: null,
      createdAt: now,
      updatedAt: now,
    }
    await db.mcpServer.create({ data, select: { id: true } }).catch((error: unknown) => {
      if (!isUniqueViolation(error)) throw error
    })
  }
  const gone = { source: 'operator', isActive: true, id: { notIn: ids } }
  await db.mcpServer.updateMany({ where: gone, data: { isActive: false, updatedAt: now } })
}
