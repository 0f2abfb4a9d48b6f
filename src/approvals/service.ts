import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { NAMED, nameIn } from '../agents/visibility.ts'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Db, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import { type ApprovalRow, decide as decideCall } from '../executions/engine/queue/approvals.ts'
import { reachable as reachableExecution, readableOf } from '../executions/service.ts'
import { type KeyClaim, store, takeClaim } from '../idempotency.ts'
import { hasLostDigits, parseExact, restoreDigits } from '../lib/exact-json.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { misfit } from './json-schema.ts'
import type { Approval, Approve, ListApprovals } from './schema.ts'

/** Filters approvals: those of executions that the caller can reach (contract.md section 2). */
export const reachable = (actor: Actor): Prisma.ApprovalWhereInput => ({
  organizationId: actor.organizationId,
  execution: reachableExecution(actor),
})

const listed = reachable

/** Columns of the run that an approval includes. */
const WITH_RUN = {
  execution: {
    select: {
      id: true,
      organizationId: true,
      userId: true,
      agentId: true,
      missionId: true,
      taskId: true,
      agent: { select: NAMED },
      chat: { select: { title: true } },
    },
  },
} satisfies Prisma.ApprovalInclude

type FullRow = Prisma.ApprovalGetPayload<{ include: typeof WITH_RUN }>

/** Converts an approval. `isReadable`: the caller may read the texts of the run, whose names the approval contains. */
const toApproval = ({ execution, ...row }: FullRow, isReadable: boolean): z.input<typeof Approval> => ({
  id: row.id,
  executionId: row.executionId,
  chatId: row.chatId,
  userId: execution.userId,
  agentId: execution.agentId,
  ...(isReadable && {
    agentName: nameIn(row.organizationId, execution.agent) ?? undefined,
    chatTitle: execution.chat.title,
  }),
  ...(execution.missionId !== null && { missionId: execution.missionId }),
  ...(execution.taskId !== null && { taskId: execution.taskId }),
  toolUseId: row.toolUseId,
  tool: row.tool,
  ...(row.mcpId !== null && { mcpId: row.mcpId }),
  ...(row.mcpName !== null && { mcpName: row.mcpName }),
  ...(row.origin !== null && { origin: row.origin }),
  ...(row.description !== null && { description: row.description }),
  input: parseExact(row.input),
  ...(row.editedInput !== null && { editedInput: parseExact(row.editedInput) }),
  ...(row.editedBy !== null && { editedBy: row.editedBy }),
  status: row.status,
  ...(row.reason !== null && { reason: row.reason }),
  createdAt: row.createdAt.toISOString(),
  expiresAt: row.expiresAt.toISOString(),
  ...(row.decidedBy !== null && { decidedBy: row.decidedBy }),
  ...(row.decidedAt && { decidedAt: row.decidedAt.toISOString() }),
})

/** Returns the filter of `list`: its input on top of {@link listed}. */
export function listedBy(actor: Actor, input: z.output<typeof ListApprovals>): Prisma.ApprovalWhereInput {
  const { status, executionId } = input
  return { AND: [listed(actor), status ? { status } : {}, executionId === undefined ? {} : { executionId }] }
}

/** GET /approvals, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListApprovals>) {
  const { where: after, ...page } = pageQuery(input)
  const where = { AND: [listedBy(actor, input), after ?? {}] }
  const found = await db.approval.findMany({ where, include: WITH_RUN, ...page })
  const { rows, nextCursor } = toPage(found, input)
  return { approvals: await toApprovals(actor, db, rows), nextCursor }
}

async function toApprovals(actor: Actor, db: Db, rows: readonly FullRow[]) {
  const readable = await readableOf(actor, db, [...new Set(rows.map(({ executionId }) => executionId))])
  return rows.map((row) => toApproval(row, readable.has(row.executionId)))
}

/** Returns the approvals with these ids that the caller can reach. */
export async function findMany(actor: Actor, { db }: Deps, ids: readonly string[]) {
  const where = { AND: [{ id: { in: [...ids] } }, reachable(actor)] }
  return toApprovals(actor, db, await db.approval.findMany({ where, include: WITH_RUN }))
}

/** Finds an approval with its run if the caller may see it. */
export async function find(actor: Actor, { db }: Deps, id: string): Promise<FullRow> {
  const row = await db.approval.findFirst({ where: { AND: [{ id }, reachable(actor)] }, include: WITH_RUN })
  if (!row) throw notFound('Approval')
  return row
}

/**
 * POST /approvals/{id}/approve and /deny: by the user who started the run, even after losing access, or by an admin who
 * can see it. Throws 409 if it was already decided or has expired, and 400 without a decision if `input` does not fit
 * the tool's schema. After the last decision the run resumes. The response is stored under the Idempotency-Key, if
 * there is one.
 */
export async function decide(
  actor: Actor,
  deps: Deps,
  { id, reason, input }: z.output<typeof Approve>,
  status: 'approved' | 'denied',
  key: KeyClaim | null,
) {
  const { db } = deps
  const found = await find(actor, deps, id)
  const { execution } = found
  const approval = permit(found, execution.userId === actor.userId || isAdmin(actor))
  const editedInput = status === 'approved' && input ? await edited(approval, input) : undefined
  const isReadable = (await readableOf(actor, db, [approval.executionId])).has(approval.executionId)
  const now = deps.clock.now()
  const answer = await db.$transaction(async (tx) => {
    if (key) await takeClaim(tx, key, now)
    const decision = { status, reason: reason ?? null, decidedBy: actor.userId, ...(editedInput && { editedInput }) }
    const decided = await decideCall(tx, approval, decision, now)
    await audit(tx, actor, status === 'approved' ? 'approval.approve' : 'approval.deny', id, now)
    const body = { approval: toApproval({ ...decided, execution }, isReadable) }
    if (key) await store(tx, key, body)
    return body
  })
  deps.bus.publish('approval', [id])
  deps.bus.publish('chat', [approval.chatId])
  deps.engine.resume(execution)
  return answer
}

/**
 * Returns a person's replacement input as JSON text; undefined if the model's own is used. Throws 400 if it does not
 * fit the tool's schema, or if it has a new number that the parser has rounded.
 */
async function edited({ input, inputSchema }: ApprovalRow, given: object): Promise<string | undefined> {
  const original = parseExact(input)
  const restored = restoreDigits(given, original)
  if (isDeepStrictEqual(restored, original)) return undefined
  const wrong = inputSchema === null ? null : await misfit(JSON.parse(inputSchema), given)
  if (wrong) {
    throw badRequest("Invalid value for field: input. Expected an input that fits the tool's schema", { detail: wrong })
  }
  if (hasLostDigits(restored, original)) {
    throw badRequest('Invalid value for field: input. Expected whole numbers up to 2^53', {
      detail:
        'A new whole number beyond 2^53 would be rounded: send it as a text, or leave the number of the call unchanged.',
    })
  }
  return JSON.stringify(restored)
}

/** Removes names from a stored response whose run the caller may no longer read. */
export async function withoutClosed<Answer extends { approval: z.input<typeof Approval> }>(
  actor: Actor,
  { db }: Deps,
  answer: Answer,
): Promise<Answer> {
  const { agentName: _, chatTitle: __, ...approval } = answer.approval
  const { executionId } = approval
  return (await readableOf(actor, db, [executionId])).has(executionId) ? answer : { ...answer, approval }
}
