import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import type { TestServer } from './server.ts'

type Explained = { database: Sqlite.Database; plans: Map<string, string[]> }

/** A connection for each database with the plans that were asked for, because a new connection reads the whole schema. */
const explained = new WeakMap<Pick<TestServer, 'folder'>, Explained>()

/** Returns how SQLite finds the rows of a statement: its plan, a step each. */
export function planOf(server: Pick<TestServer, 'folder'>, sql: string): string[] {
  let known = explained.get(server)
  if (!known) {
    known = { database: new Sqlite(join(server.folder, 'muster.db'), { readonly: true }), plans: new Map() }
    explained.set(server, known)
  }
  let plan = known.plans.get(sql)
  if (!plan) {
    const explain = known.database.prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
    plan = explain.all(...sql.matchAll(/\?/g).map(() => null)).map(({ detail }) => detail)
    known.plans.set(sql, plan)
  }
  return plan
}

/** A step that finds rows by nothing that makes them few: all of a table, of an organization, or of one state. */
const WIDE = 'organizationId|agentOrganizationId|archivedAt|visibility|status|priority|role'
const WALK = new RegExp(`^SCAN (?!CONSTANT)[A-Z]|^(SEARCH|SCAN) .*\\(((${WIDE})=\\?( AND )?)+\\)$`)

/** Of these there are few: one for each organization, its providers, of which there is a maximum, and runs of a status that says that they are under way. */
const FEW = /DataKey|Installation|Provider/
const LIVE = /"terminalSeq" IS NULL/

/** Whether it says of which rows it wants some: of those with an id, or of an agent, a chat. */
const NAMED = new RegExp(`(WHERE|AND) \\(?(t\\.)?"(?!(${WIDE})")(\\w+Id|id|assignedTo)" (=|IN)`)

/**
 * The steps by which a statement goes through rows that nobody asked for, so that it takes the longer the more there are.
 * A page of a whole list is none: its first rows are read, in the order of an index.
 */
export function walksOf(server: Pick<TestServer, 'folder'>, sql: string): string[] {
  const plan = planOf(server, sql)
  const isPage = / LIMIT /.test(sql) && !NAMED.test(sql) && !plan.some((step) => step.startsWith('USE TEMP B-TREE'))
  return isPage
    ? []
    : plan.filter((step) => WALK.test(step) && !FEW.test(step) && !(LIVE.test(sql) && step.includes('status=?')))
}
