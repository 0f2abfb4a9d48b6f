import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import type { TestServer } from './server.ts'

type Explained = { database: Sqlite.Database; plans: Map<string, string[]> }

/**
 * A connection for each database with the plans that were asked for, because a new connection reads the whole schema.
 */
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

/** A step without a selective condition: it reads a whole table, organization or state. */
const WIDE = 'organizationId|agentOrganizationId|archivedAt|visibility|status|priority|role'
const WALK = new RegExp(`^SCAN (?!CONSTANT)[A-Z]|^(SEARCH|SCAN) .*\\(((${WIDE})=\\?( AND )?)+\\)$`)

/** Tables and states with few rows: organizations, their limited providers, and active runs. */
const FEW = /DataKey|Installation|Provider/
const LIVE = /"terminalSeq" IS NULL/

/** Whether the step is selective, for example by an id, an agent or a chat. */
const NAMED = new RegExp(`(WHERE|AND) \\(?(t\\.)?"(?!(${WIDE})")(\\w+Id|id|assignedTo)" (=|IN)`)

/**
 * The steps of a statement that read rows beyond the requested ones, so that its cost grows with the data. Reading the
 * first rows of a list in the order of an index is none.
 */
export function walksOf(server: Pick<TestServer, 'folder'>, sql: string): string[] {
  const plan = planOf(server, sql)
  const isPage = / LIMIT /.test(sql) && !NAMED.test(sql) && !plan.some((step) => step.startsWith('USE TEMP B-TREE'))
  return isPage
    ? []
    : plan.filter((step) => WALK.test(step) && !FEW.test(step) && !(LIVE.test(sql) && step.includes('status=?')))
}
