import { Client } from 'pg'
import type { Postgres } from '../test/support/postgres.ts'

/** Returns a PostgreSQL's settings of durability. Throws unless commits are on the disk. */
export async function durabilityOf(postgres: Postgres): Promise<string> {
  const client = new Client({ connectionString: await postgres.createDatabase() })
  await client.connect()
  const show = async (name: string): Promise<string> => (await client.query(`SHOW ${name}`)).rows[0][name]
  const settings = { fsync: await show('fsync'), synchronous_commit: await show('synchronous_commit') }
  const version = await show('server_version')
  await client.end()
  const values = Object.entries(settings).map(([name, value]) => `${name}=${value}`)
  if (Object.values(settings).some((value) => value !== 'on')) throw new Error(`PostgreSQL has ${values.join(', ')}`)
  return `PostgreSQL ${version}, ${values.join(', ')}`
}
