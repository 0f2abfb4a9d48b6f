/** Prisma's schema engine (WebAssembly), for the migration script and tests. The service does not use it. */
import {
  bindMigrationAwareSqlAdapterFactory,
  ColumnTypeEnum,
  mockMigrationAwareAdapterFactory,
  type SqlDriverAdapter,
  type SqlMigrationAwareDriverAdapterFactory,
} from '@prisma/driver-adapter-utils'
import type { DiffTarget } from '@prisma/schema-engine-wasm'

/** Returns the SQL from one schema to another; empty if they are equal. */
export async function diff(
  factory: SqlMigrationAwareDriverAdapterFactory,
  from: DiffTarget,
  to: DiffTarget,
): Promise<string> {
  const SchemaEngine = await loadQuietly()
  const connections: SqlDriverAdapter[] = []
  const connect = async () => {
    const connection = await factory.connect()
    connections.push(connection)
    return connection
  }
  const adapter = bindMigrationAwareSqlAdapterFactory({ ...factory, connect, connectToShadowDb: connect })
  const engine = await SchemaEngine.new({ datamodels: undefined }, () => {}, adapter)
  try {
    const filters = { externalTables: [], externalEnums: [] }
    const { exitCode, stdout } = await engine.diff({ from, to, script: true, exitCode: true, filters })
    return exitCode === 0 ? '' : quoted(stdout ?? '')
  } finally {
    engine.free()
    for (const connection of connections) await connection.dispose()
  }
}

/** The engine writes JSON defaults unquoted for SQLite, where `[]` is an identifier: an empty text. */
const quoted = (sql: string): string =>
  sql.replace(
    /( JSONB(?: NOT NULL)? DEFAULT )(?!')(.*?)([,;]?)$/gm,
    (_, column: string, json: string, end: string) => `${column}'${json.replaceAll("'", "''")}'${end}`,
  )

/** Returns a diff target for a schema. */
export const schema = (content: string): DiffTarget => ({ tag: 'schemaDatamodel', files: files(content) })

/** Returns a diff target for the tables of the database given to `diff`, whose kind the schema states. */
export const database = (content: string): DiffTarget => ({
  tag: 'schemaDatasource',
  files: files(content),
  configDir: import.meta.dirname,
})

const files = (content: string) => [{ path: 'schema.prisma', content }]

/** Returns a schema without its models, for an empty database. */
export const emptied = (content: string): string => content.slice(0, content.search(/^(\/\/\/|enum|model)/m))

/** A stub adapter: comparing schemas needs no database, but the engine asks PostgreSQL for its version. */
export function noDatabase(provider: 'sqlite' | 'postgres'): SqlMigrationAwareDriverAdapterFactory {
  const mock = mockMigrationAwareAdapterFactory(provider)
  const connect = async () => ({
    ...(await mock.connect()),
    getConnectionInfo: () => ({ schemaName: 'public', supportsRelationJoins: true }),
    queryRaw: async () => ({
      columnNames: ['exists', 'version', 'numeric_version'],
      columnTypes: [ColumnTypeEnum.Boolean, ColumnTypeEnum.Text, ColumnTypeEnum.Int32],
      rows: [[true, 'PostgreSQL 16.0', 160000]],
    }),
    dispose: async () => {},
  })
  return { ...mock, connect }
}

/** Suppresses Node's warning that importing WebAssembly is experimental. */
async function loadQuietly() {
  const emitWarning = process.emitWarning
  process.emitWarning = () => {}
  const { SchemaEngine } = await import('@prisma/schema-engine-wasm').finally(() => {
    process.emitWarning = emitWarning
  })
  return SchemaEngine
}
