import type { Logger } from 'pino'
import { type Db, Prisma } from '../client.ts'

/**
 * Logs a warning if strangers can read the tables through an API of the host. Supabase's Data API serves the schema
 * `public` to anyone, as the role `anon` or `authenticated`, and gives both all rights to new tables by default.
 */
export async function warnOfExposure(db: Db, log: Pick<Logger, 'warn'>): Promise<void> {
  const found = await db.$queryRaw<{ role: string }[]>(Prisma.sql`
    SELECT "rolname"::text AS "role" FROM pg_roles
    WHERE "rolname" IN ('anon', 'authenticated') AND has_table_privilege("oid", '"Execution"', 'SELECT')
      AND NOT (SELECT "relrowsecurity" FROM pg_class WHERE "oid" = '"Execution"'::regclass)
    ORDER BY 1`)
  if (!found.length) return
  log.warn(
    { roles: found.map(({ role }) => role) },
    'these roles may read all tables, and an API of the database host, such as the Data API of Supabase, may serve them ' +
      'to anyone: turn that API off, or take the schema public out of it, then REVOKE ALL ON ALL TABLES IN SCHEMA public ' +
      'FROM these roles',
  )
}
