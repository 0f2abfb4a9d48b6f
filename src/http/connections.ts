import { readFile } from 'node:fs/promises'
import type { Server } from 'node:http'
import type { Logger } from 'pino'

/** File descriptors reserved for the database, models, tools and files. */
const RESERVED = 64
/** Interval at which refused connections are logged (ms). */
const LOG_INTERVAL = 60_000

/**
 * Limits the connections of a server to 64 below the process's limit of file descriptors. A server that runs out of
 * them cannot reach its database or its models. Refused connections are counted and logged once a minute.
 */
export async function limitConnections(server: Server, log: Logger): Promise<void> {
  const descriptors = await maxDescriptors()
  if (descriptors === null) return
  const maximum = Math.max(RESERVED, descriptors - RESERVED)
  server.maxConnections = maximum
  let refused = 0
  server.on('drop', () => {
    if (++refused > 1) return
    log.warn({ maximum }, 'a connection was refused: too many are open. Raise the limit of open files (ulimit -n)')
    setTimeout(() => {
      if (refused > 1) log.warn({ maximum, refused }, 'connections were refused in the last minute')
      refused = 0
    }, LOG_INTERVAL).unref()
  })
}

/** Returns the process's limit of open files; null without a limit or if it is unknown. */
async function maxDescriptors(): Promise<number | null> {
  const text = await readFile('/proc/self/limits', 'utf8').catch(() => '')
  const [, soft] = /^Max open files +(\d+)/m.exec(text) ?? []
  return soft === undefined ? null : Number(soft)
}
