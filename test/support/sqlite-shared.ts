import { constants } from 'node:fs'
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inject } from 'vitest'
import type { TestProject } from 'vitest/node'
import { databaseFile } from '../../src/db/client.ts'
import { migrateSqlite } from '../../src/db/migrate.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The migrated SQLite file that others are copied from. */
    sqlite: string
  }
}

let folder: string

/** One migrated file for all test files of a run: what a new one takes is mostly its migrations. */
export async function setup(project: TestProject): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'muster-sqlite-'))
  const file = join(folder, 'template.db')
  await migrateSqlite(file)
  project.provide('sqlite', file)
}

export const teardown = (): Promise<void> => rm(folder, { recursive: true, force: true })

/** Puts a migrated, empty database where a server or a client with this folder has its own, unless there is one. */
export async function copySqlite(DATA_DIR: string): Promise<void> {
  const file = databaseFile({ DATA_DIR, DATABASE_URL: undefined }) ?? ''
  await copyFile(inject('sqlite'), file, constants.COPYFILE_EXCL).catch((error) => {
    if (error.code !== 'EEXIST') throw error
  })
}
