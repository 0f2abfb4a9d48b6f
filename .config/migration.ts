/**
 * `npm run migration -- NAME`: writes the SQL that leads from the last migration to prisma/schema.prisma, for both
 * databases, into prisma/migrations/{sqlite,postgresql}/<timestamp>_<name>/migration.sql. Read it before you commit.
 *
 * The schema that the migrations amount to is kept beside them (migrations/schema.prisma), so that no database is
 * needed; the tests compare what the SQL really gives with the models.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import {
  bindMigrationAwareSqlAdapterFactory,
  ColumnTypeEnum,
  mockMigrationAwareAdapterFactory,
} from '@prisma/driver-adapter-utils'
import { SchemaEngine } from '@prisma/schema-engine-wasm'
import { postgresqlTwin } from './generate.ts'

const root = dirname(import.meta.dirname)
const migrations = join(root, 'prisma', 'migrations')
const snapshot = join(migrations, 'schema.prisma')

/** An adapter without a database. The engine asks PostgreSQL for its version, and neither of them anything else. */
function adapter(provider: 'sqlite' | 'postgres') {
  const mock = mockMigrationAwareAdapterFactory(provider)
  const connect = async () => ({
    ...(await mock.connect()),
    getConnectionInfo: () => ({ schemaName: 'public', supportsRelationJoins: true }),
    queryRaw: async () => ({
      columnNames: ['exists', 'version', 'numeric_version'],
      columnTypes: [ColumnTypeEnum.Boolean, ColumnTypeEnum.Text, ColumnTypeEnum.Int32],
      rows: [[true, 'PostgreSQL 16.0', 160000]],
    }),
  })
  return bindMigrationAwareSqlAdapterFactory({ ...mock, connect })
}

/** The SQL that leads from one schema to another; empty when they are equal. */
async function diff(provider: 'sqlite' | 'postgres', from: string, to: string): Promise<string> {
  const engine = await SchemaEngine.new({ datamodels: undefined }, () => {}, adapter(provider))
  const datamodel = (content: string) => ({
    tag: 'schemaDatamodel' as const,
    files: [{ path: 'schema.prisma', content }],
  })
  const { exitCode, stdout } = await engine.diff({
    from: datamodel(from),
    to: datamodel(to),
    script: true,
    exitCode: true,
    filters: { externalTables: [], externalEnums: [] },
  })
  return exitCode === 0 ? '' : (stdout ?? '')
}

const name = process.argv[2]
if (!name || !/^[a-z][a-z0-9_]*$/.test(name)) {
  console.error('Give the migration a name: npm run migration -- add_tasks')
  process.exit(1)
}
const after = readFileSync(join(root, 'prisma', 'schema.prisma'), 'utf8')
const before = existsSync(snapshot)
  ? readFileSync(snapshot, 'utf8')
  : after.slice(0, after.search(/^(\/\/\/|enum|model)/m))
const scripts = {
  sqlite: await diff('sqlite', before, after),
  postgresql: await diff('postgres', postgresqlTwin(before), postgresqlTwin(after)),
}
if (!scripts.sqlite && !scripts.postgresql) {
  console.log('The migrations are up to date with the schema.')
  process.exit()
}
const stamp = new Date().toISOString().replace(/\D/g, '').slice(0, 14)
for (const [database, sql] of Object.entries(scripts)) {
  const folder = join(migrations, database, `${stamp}_${name}`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'migration.sql'), sql || '-- Nothing changes in this database.\n')
  console.log(relative(root, join(folder, 'migration.sql')))
}
writeFileSync(snapshot, after)
