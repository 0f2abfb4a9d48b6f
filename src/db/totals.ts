import type { Db, Prisma } from './client.ts'

/**
 * The sum of kept totals: those of nobody in particular and of no value, unless told. Triggers keep them, in the
 * transaction that changes a row, whoever's it is; the migration `totals` says what each of them counts.
 */
export async function totalOf(db: Db, where: Prisma.TotalWhereInput): Promise<number> {
  const rows = await db.total.findMany({ where: { userId: '', value: '', ...where }, select: { count: true } })
  return rows.reduce((sum, { count }) => sum + count, 0)
}
