import { type Db, Prisma } from '../../../db/client.ts'

/** The result of {@link readSpace}, or null if it failed. */
export type ReadSpace = Promise<Awaited<ReturnType<typeof readSpace>> | null>

/** Reads the instructions of a space and whether it has skills or MCP servers. */
export async function readSpace(db: Db, id: string) {
  const [space] = await db.$queryRaw<{ instructions: string | null; hasTools: boolean | bigint }[]>(Prisma.sql`
    SELECT s."instructions", (
      EXISTS (SELECT 1 FROM "SpaceSkill" k WHERE k."spaceId" = s."id") OR
      EXISTS (SELECT 1 FROM "SpaceMcp" m WHERE m."spaceId" = s."id")) AS "hasTools"
    FROM "Space" s WHERE s."id" = ${id}`)
  return { instructions: space?.instructions, hasTools: Boolean(space?.hasTools) }
}
