import { z } from 'zod'
import { inRange, moment, ok, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

const filters = {
  action: z.string().max(100).optional().describe('Only this action, for example `member.update`'),
  actorId: z.string().optional().describe('Only events that this user caused; `operator` for the command line'),
  target: z.string().max(1000).optional().describe('Only events about the resource with this id'),
  since: moment.check(inRange).optional().describe('Only events at this time or later; a date begins at midnight UTC'),
  until: moment.check(inRange).optional().describe('Only events before this time; a date begins at midnight UTC'),
}

/** GET /audit (contract-2.md section 3.7). */
export const ListAudit = z.object({ ...filters, ...pageInput })

/** GET /audit/export (contract-2.md section 3.7). */
export const ExportAudit = z.object(filters)

/** Kinds of actors. */
export const ActorKind = z
  .enum(['user', 'token', 'service', 'system'])
  .meta({ id: 'ActorKind', description: 'Kind of actor' })

/** The cause of an audit event. */
export const AuditActor = z
  .object({
    id: z.string().describe('The user id, or `operator` for the command line and the service itself'),
    name: z.string().describe('The current name of the user'),
    kind: ActorKind.describe(
      '`user`: a person with a session or ID token; `token`: a person with a key; `service`: a service account; `system`: the operator',
    ),
    tokenId: z.string().nullable().describe('The key that was used; null without a key'),
  })
  .meta({ id: 'AuditActor', description: 'The cause of an audit event' })

/** A change in an organization (contract-2.md section 3.7). */
export const AuditEvent = z
  .object({
    id: z.string().describe('Identifies the event'),
    at: timestamp.describe('Time of the event'),
    action: z.string().describe('`<resource>.<verb>`, for example `member.update`'),
    actor: AuditActor.describe('The cause of the event'),
    target: z.string().describe('The id of the changed resource'),
    ip: z.string().nullable().describe('Network address of the request; null without a request'),
    requestId: z.string().nullable().describe('`X-Request-Id` of the request; null without a request'),
    changes: z
      .unknown()
      .describe(
        'Details of the change, for example `{"role": {"from": "member", "to": "admin"}}`; null if there are none',
      ),
  })
  .meta({ id: 'AuditEvent', description: 'A change in the organization' })

export const AuditResponse = ok({ events: z.array(AuditEvent).describe('Newest first'), nextCursor })
