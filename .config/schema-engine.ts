/** Prisma's schema engine (WebAssembly), as the migration script and the tests use it. The service does without. */
import {
  bindMigrationAwareSqlAdapterFactory,
  ColumnTypeEnum,
  mockMigrationAwareAdapterFactory,
  type SqlDriverAdapter,
  type SqlMigrationAwareDriverAdapterFactory,
} from '@prisma/driver-adapter-utils'
import type { DiffTarget } from '@prisma/schema-engine-wasm'

/** The SQL that leads from one side to the other; empty when they are equal. */
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

/** For SQLite the engine writes defaults of JSON as they are, and there `[]` is an identifier: an empty text. */
const quoted = (sql: string): string =>
  sql.replace(
    /( JSONB(?: NOT NULL)? DEFAULT )(?!')(.*?)([,;]?)$/gm,
    (_, column: string, json: string, end: string) => `${column}'${json.replaceAll("'", "''")}'${end}`,
  )

/** A side: what a schema says. */
export const schema = (content: string): DiffTarget => ({ tag: 'schemaDatamodel', files: files(content) })

/** A side: the tables of the database that `diff` is given, whose kind the schema says. */
export const database = (content: string): DiffTarget => ({
  tag: 'schemaDatasource',
  files: files(content),
  configDir: import.meta.dirname,
})

const files = (content: string) => [{ path: 'schema.prisma', content }]

/** A schema without its models: what an empty database has. */
export const emptied = (content: string): string => content.slice(0, content.search(/^(\/\/\/|enum|model)/m))

/** To compare schemas, no database is needed. The engine asks PostgreSQL for its version all the same. */
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

/** Node warns, once, that importing WebAssembly is experimental. Nobody who runs this can do anything about it. */
async function loadQuietly() {
  const emitWarning = process.emitWarning
  process.emitWarning = () => {}
  const { SchemaEngine } = await import('@prisma/schema-engine-wasm').finally(() => {
    process.emitWarning = emitWarning
  })
  return SchemaEngine
}
