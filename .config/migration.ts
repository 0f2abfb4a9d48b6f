/**
 * `npm run migration -- NAME`: writes the SQL from the last migration to prisma/schema.prisma, for both databases, into
 * prisma/migrations/{sqlite,postgresql}/<timestamp>_<name>/migration.sql. Review it before you commit.
 *
 * The schema that results from the migrations is stored beside them (migrations/schema.prisma), so that no database is
 * needed. Tests compare the result of the SQL with the models.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { postgresqlTwin } from './generate.ts'
import { diff, emptied, noDatabase, schema } from './schema-engine.ts'

const root = dirname(import.meta.dirname)
const migrations = join(root, 'prisma', 'migrations')
const snapshot = join(migrations, 'schema.prisma')

const name = process.argv[2]
if (!name || !/^[a-z][a-z0-9_]*$/.test(name)) {
  console.error('Give the migration a name: npm run migration -- add_tasks')
  process.exit(1)
}
const after = readFileSync(join(root, 'prisma', 'schema.prisma'), 'utf8')
const before = existsSync(snapshot) ? readFileSync(snapshot, 'utf8') : emptied(after)
const scripts = {
  sqlite: await diff(noDatabase('sqlite'), schema(before), schema(after)),
  postgresql: await diff(noDatabase('postgres'), schema(postgresqlTwin(before)), schema(postgresqlTwin(after))),
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
