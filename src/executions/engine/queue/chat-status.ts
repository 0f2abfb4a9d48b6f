import { Prisma, type Tx } from '../../../db/client.ts'

type Status = Prisma.ChatGetPayload<object>['status']

/**
 * Returns the status of a chat (contract.md section 6), which can have several sessions: one for a run that waits for
 * an approval, one for an active run, else `otherwise`. The caller has just changed a run and updates the chat next;
 * the chat's row lock makes the second of two concurrent callers see the change of the first.
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
  // A client that calls its own tool needs no person.
  if (active.some(({ waitingFor }) => waitingFor && waitingFor !== 'client_tool')) return 'needs_attention'
  return active.length ? 'working' : otherwise
}
