import { Prisma } from './client.ts'

/**
 * Returns a condition that must not choose the index of a statement. SQLite uses no index for a double negation;
 * PostgreSQL sees no difference.
 */
export const withoutIndex = (condition: Prisma.Sql): Prisma.Sql => Prisma.sql`NOT (NOT (${condition}))`

/** Returns a `where` of Prisma that must not choose the index, either. */
export const whereWithoutIndex = <Where extends object>(where: Where) => ({ NOT: { NOT: where } })
