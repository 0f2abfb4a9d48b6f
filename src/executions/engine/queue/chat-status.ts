import { Prisma, type Tx } from '../../../db/client.ts'

type Status = Prisma.ChatGetPayload<object>['status']

/**
 * What goes on in a chat (contract.md section 6), which may have several sessions: a run waits for an approval, or one is
 * on; `otherwise` where neither is so. For whoever has just changed one of them, and changes the chat next: of two at the
 * same time the second sees what the first has done, since the chat's row is the lock.
 */
export async function chatStatus(
  tx: Tx,
  { organizationId, chatId }: { organizationId: string; chatId: string },
  otherwise: Status,
  now: Date,
): Promise<Status> {
  await tx.chat.updateMany({ where: { id: chatId }, data: { updatedAt: now } })
  const active = await tx.$queryRaw<{ waitingFor: string | null }[]>(Prisma.sql`
    SELECT e."waitingFor" FROM "Session" s JOIN "Execution" e ON e."id" = s."activeExecutionId"
    WHERE s."organizationId" = ${organizationId} AND s."chatId" = ${chatId}`)
  if (active.some(({ waitingFor }) => waitingFor)) return 'needs_attention'
  return active.length ? 'working' : otherwise
}
