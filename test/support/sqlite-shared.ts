import { constants } from 'node:fs'
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inject } from 'vitest'
import type { TestProject } from 'vitest/node'
import { databaseFile } from '../../src/db/client.ts'
import { migrateSqlite } from '../../src/db/sqlite/migrate.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The migrated template file. */
    sqlite: string
  }
}

let folder: string

/** Migrates one file for all test files of a run, because a new file spends most of its time on migrations. */
export async function setup(project: TestProject): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'muster-sqlite-'))
  const file = join(folder, 'template.db')
  await migrateSqlite(file)
  project.provide('sqlite', file)
}

export const teardown = (): Promise<void> => rm(folder, { recursive: true, force: true, maxRetries: 3 })

/** Copies the migrated, empty database into a folder as DATA_DIR, unless one exists there. */
export async function copySqlite(DATA_DIR: string): Promise<void> {
  const file = databaseFile({ DATA_DIR, DATABASE_URL: undefined }) ?? ''
  await copyFile(inject('sqlite'), file, constants.COPYFILE_EXCL).catch((error) => {
    if (error.code !== 'EEXIST') throw error
  })
}
