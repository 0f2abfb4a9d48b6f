import type { Db, Prisma } from '../../src/db/client.ts'
import { chunk } from '../../src/lib/chunk.ts'

/**
 * Adds a chain of executions of any depth below one that has ended, as earlier versions allowed. Returns all ids in
 * order.
 */
export async function chainBelow(db: Db, id: string, length: number): Promise<string[]> {
  const top = await db.execution.findUniqueOrThrow({ where: { id } })
  const ids = [id, ...Array.from({ length }, (_, index) => `${id}${index + 1}`)]
  const rows = ids.slice(1).map((below, index) => ({
    ...top,
    id: below,
    queueSeq: top.queueSeq + index + 1,
    parentExecutionId: ids[index] as string,
    depth: top.depth + index + 1,
  }))
  for (const part of chunk(rows, 500)) {
    await db.execution.createMany({ data: part as Prisma.ExecutionCreateManyInput[] })
  }
  return ids
}
