import { Client } from 'pg'
import { choosesHost, splitHosts } from '../../lib/postgres-url.ts'
import { raceTimeout } from '../../lib/race-abort.ts'

/** Maximum time in which a host answers (ms), and in which others answer after the first one that accepts writes. */
const PATIENCE = 3_000
const MORE_PATIENCE = 500

/** Has the code of PostgreSQL for a write on a standby, so that it counts as unavailability. */
class NoWritableHost extends Error {
  override name = 'NoWritableHost'
  readonly code = '25006'
}

/**
 * Returns the address of the host that accepts writes, out of those that a URL lists. All are asked at once. If several
 * accept writes, the one that was promoted last is chosen: a former primary that came back has an older timeline. A URL
 * with one host and without `target_session_attrs` is returned without asking. Throws the error of a host, or
 * {@link NoWritableHost}.
 */
export async function findWritableHost(url: string): Promise<string> {
  const urls = splitHosts(url)
  if (!choosesHost(url)) return urls[0]!
  const found: { url: string; timeline: number }[] = []
  const failures: Error[] = []
  const first = Promise.withResolvers<void>()
  const asked = urls.map(async (each) => {
    try {
      const timeline = await timelineOf(each)
      if (timeline === null) return
      found.push({ url: each, timeline })
      first.resolve()
    } catch (error) {
      failures.push(error as Error)
    }
  })
  const all = Promise.all(asked)
  await Promise.race([first.promise, all])
  await raceTimeout(all, MORE_PATIENCE)
  const latest = Math.max(...found.map(({ timeline }) => timeline))
  const chosen = urls.find((each) => found.some((one) => one.url === each && one.timeline === latest))
  if (chosen) return chosen
  // A wrong password is a wrong password on every host, and is reported as such.
  if (failures.length === urls.length) throw failures[0]!
  throw new NoWritableHost('No host of the database accepts writes: all that answer are standbys')
}

/** Returns the timeline of a server that accepts writes, or null for a standby and a read-only server. */
async function timelineOf(connectionString: string): Promise<number | null> {
  const client = new Client({ connectionString, connectionTimeoutMillis: PATIENCE, query_timeout: PATIENCE })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ readOnly: string; file: string | null }>(
      `SELECT current_setting('transaction_read_only') AS "readOnly",
        CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_lsn()) END AS "file"`,
    )
    const [row] = rows
    return !row?.file || row.readOnly === 'on' ? null : Number.parseInt(row.file.slice(0, 8), 16)
  } finally {
    // Not awaited, because the host may not answer.
    client.end().catch(() => {})
  }
}
