import { createHash } from 'node:crypto'
import { inject } from 'vitest'
import type { TestProject } from 'vitest/node'
import { migratePostgresql } from '../../src/db/postgresql/migrate.ts'
import { type Postgres, runSql, startPostgres } from './postgres.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The migrated template database; null with SKIP_POSTGRES=1. */
    postgres: string | null
  }
}

/** Whether a PostgreSQL is available. */
export const hasPostgres = process.env.SKIP_POSTGRES !== '1'

/** Whether this test file runs on PostgreSQL. */
export const onPostgres = process.env.DATABASE === 'postgresql'

/** Number of repetitions of random tests: a fifth on PostgreSQL, where each is several times as slow. */
export const times = (count: number): number => (onPostgres ? count / 5 : count)

/** Number of repetitions of races and of things at once: two fifths of {@link times}, and all with NIGHTLY=1. */
export const races = (count: number): number => Math.round(times(process.env.NIGHTLY === '1' ? count : count * 0.4))

let postgres: Postgres | null = null

/** Starts one PostgreSQL for all test files of a run. If it cannot start, the run fails. */
export async function setup(project: TestProject): Promise<void> {
  if (!hasPostgres) {
    console.warn('SKIP_POSTGRES=1: nothing is tried on PostgreSQL')
    project.provide('postgres', null)
    return
  }
  postgres = await startPostgres()
  const template = await postgres.createDatabase()
  await migratePostgresql(template)
  project.provide('postgres', template)
}

export async function teardown(): Promise<void> {
  await postgres?.[Symbol.asyncDispose]()
}

export type SharedDatabase = { url: string; drop: () => Promise<void> }

/**
 * Creates a database on the PostgreSQL of this run (about 30 ms): migrated and empty, or the existing one of this
 * `name`. Its connections end when it is dropped.
 */
export async function shareDatabase(name: string = crypto.randomUUID()): Promise<SharedDatabase> {
  const template = new URL(inject('postgres') ?? '')
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 32)
  const url = Object.assign(new URL(template), { pathname: `/t_${digest}` })
  const admin = Object.assign(new URL(template), { pathname: '/postgres' }).href
  const from = template.pathname.slice(1)
  // Copying never waits, because no connection to the template exists.
  await runSql(admin, `CREATE DATABASE "t_${digest}" TEMPLATE "${from}" STRATEGY FILE_COPY`).catch((error) => {
    if (error.code !== '42P04') throw error
  })
  const drop = async () => void (await runSql(admin, `DROP DATABASE IF EXISTS "t_${digest}" WITH (FORCE)`))
  return { url: url.href, drop }
}

/** Creates a database without any table, on the PostgreSQL of this run. */
export async function shareEmptyDatabase(): Promise<SharedDatabase> {
  const { url, drop } = await shareDatabase()
  await runSql(url, 'DROP SCHEMA public CASCADE; CREATE SCHEMA public')
  return { url, drop }
}
