import { toAgent } from '../../src/agents/rows.ts'
import type { Prisma } from '../../src/db/client.ts'
import { newId } from '../../src/lib/id.ts'
import type { Member, TestServer } from '../support/server.ts'

/**
 * Number of rows of each kind, and of rows that refer to each hub. Hubs are the oldest rows, with a hundred before
 * them.
 */
export const MANY = 102

/** The hub of each type: a row that many rows refer to. */
export type Hubs = Record<'Agent' | 'Chat' | 'Execution' | 'Mission' | 'Space' | 'Task' | 'Webhook', string>

/**
 * Fills a member's organization with many rows of every kind. Each refers to rows of its own; as many older ones all
 * refer to the hubs. `few` is a run with ten children.
 */
export async function fill(server: TestServer, { organizationId, userId }: Member): Promise<Hubs & { few: string }> {
  const { db } = server.service.deps
  const indexes = Array.from({ length: MANY }, (_, i) => i)
  const ids = () => indexes.map(() => newId())
  // Recent, because retention deletes old rows.
  const begin = Date.now() - 60 * 60 * 1000
  const at = (i: number) => new Date(begin + i * 1000)
  const times = (i: number) => ({ createdAt: at(i), updatedAt: at(i) })
  const mine = { organizationId }
  const user = ids()
  const [agent, space, chat, session, execution, mission] = [ids(), ids(), ids(), ids(), ids(), ids()]
  const [task, mcp, skill] = [ids(), ids(), ids()]
  const of = (list: string[], i: number) => list[i]!

  const users = indexes.map((i) => ({
    id: of(user, i),
    email: `${of(user, i)}@example.com`,
    name: `U${i}`,
    ...times(i),
  }))
  await db.user.createMany({ data: users })
  await db.membership.createMany({
    data: indexes.map((i) => ({ ...mine, userId: of(user, i), role: 'member', createdAt: at(i) })),
  })
  await db.token.createMany({
    data: indexes.map((i) => ({
      id: newId(),
      ...mine,
      userId,
      name: `K${i}`,
      digest: newId(),
      preview: 'x',
      scopes: [],
      createdAt: at(i),
    })),
  })
  await db.auditEvent.createMany({
    data: indexes.map((i) => ({
      id: newId(),
      ...mine,
      actor: of(user, i),
      action: 'agent.create',
      target: newId(),
      at: at(i),
    })),
  })
  await db.invitation.createMany({
    data: indexes.map((i) => ({
      id: newId(),
      ...mine,
      email: `i${i}@example.com`,
      role: 'member',
      digest: newId(),
      mailOnly: false,
      createdBy: userId,
      createdAt: at(i),
      expiresAt: new Date(begin + 24 * 60 * 60 * 1000),
    })),
  })
  await db.space.createMany({
    data: indexes.map((i) => ({
      id: of(space, i),
      ...mine,
      name: `S${i}`,
      visibility: 'organization',
      ownerId: of(user, i),
      fileCount: 1,
      ...times(i),
    })),
  })
  await db.mcpServer.createMany({
    data: indexes.map((i) => ({
      id: of(mcp, i),
      ...mine,
      ownerId: of(user, i),
      mcpType: 't',
      name: `M${i}`,
      url: 'https://example.com',
      transport: 'sse',
      headers: {},
      permissions: [],
      ...times(i),
    })),
  })
  await db.skill.createMany({
    data: indexes.map((i) => ({
      id: of(skill, i),
      ...mine,
      ownerId: of(user, i),
      name: `s-${i}`,
      displayName: 'S',
      description: 'd',
      prompt: 'p',
      category: 'other',
      builtInTools: [],
      requiredMCPs: [],
      visibility: 'organization',
      version: 1,
      ...times(i),
    })),
  })
  await db.agent.createMany({
    data: indexes.map((i) => ({
      id: of(agent, i),
      ...mine,
      userId: of(user, i),
      name: `A${i}`,
      role: 'r',
      systemPrompt: 'p',
      visibility: 'public',
      tags: [],
      skillIds: [of(skill, i)],
      mcpInstanceIds: [of(mcp, i)],
      mcpTypes: [],
      subagentIds: [of(agent, (i + 1) % MANY)],
      allowedTools: [],
      disallowedTools: [],
      searchText: '',
      version: MANY,
      ...times(i),
    })),
  })
  const [first] = await db.agent.findMany({ where: { id: of(agent, 0) } })
  const snapshot = toAgent(first!) as Prisma.InputJsonObject
  const versions = [...indexes.map((i) => ({ agentId: of(agent, 0), version: i + 1 }))].concat(
    indexes.slice(1).map((i) => ({ agentId: of(agent, i), version: 1 })),
  )
  await db.agentVersion.createMany({
    data: versions.map((version) => ({ ...mine, ...version, userId, createdAt: at(0), agent: snapshot })),
  })
  const added = (i: number) => ({ ...mine, spaceId: of(space, i), addedAt: at(0), addedBy: userId })
  await db.spaceAgent.createMany({ data: indexes.map((i) => ({ ...added(i), agentId: of(agent, i) })) })
  await db.spaceSkill.createMany({ data: indexes.map((i) => ({ ...added(i), skillId: of(skill, i) })) })
  await db.spaceMcp.createMany({ data: indexes.map((i) => ({ ...added(i), mcpId: of(mcp, i) })) })

  // Rows with their own references, then the older rows of the hubs.
  const both = indexes.flatMap((i) => [
    { i, of: i, when: MANY + i, id: null },
    { i, of: 0, when: i, id: newId() },
  ])
  await db.mission.createMany({
    data: both.map((one) => ({
      id: one.id ?? of(mission, one.i),
      ...mine,
      userId: of(user, one.i),
      spaceId: of(space, one.of),
      agentId: of(agent, one.of),
      agentOrganizationId: organizationId,
      title: 'M',
      goal: 'g',
      visibility: 'organization',
      status: 'pending',
      scheduleType: 'none',
      timezone: 'UTC',
      overlap: 'skip',
      catchUp: 'last',
      ...times(one.when),
    })),
  })
  await db.chat.createMany({
    data: both.map((one) => ({
      id: one.id ?? of(chat, one.i),
      ...mine,
      spaceId: of(space, one.of),
      ownerId: of(user, one.i),
      title: 'C',
      agentId: of(agent, one.of),
      agentOrganizationId: organizationId,
      status: 'done',
      missionId: of(mission, one.of),
      ...times(one.when),
    })),
  })
  await db.session.createMany({
    data: indexes.map((i) => ({
      id: of(session, i),
      ...mine,
      chatId: of(chat, i),
      agentId: of(agent, i),
      agentOrganizationId: organizationId,
      userId,
      ...times(i),
    })),
  })
  await db.task.createMany({
    data: both.map((one) => ({
      id: one.id ?? of(task, one.i),
      ...mine,
      title: 'T',
      description: '',
      status: 'pending',
      priority: 'low',
      ...(one.id || one.i % 2
        ? { assignedTo: of(agent, one.of), assignedAgentId: of(agent, one.of) }
        : { assignedTo: of(user, one.i) }),
      spaceId: of(space, one.of),
      executionId: of(execution, one.of),
      createdBy: userId,
      ...times(one.when),
    })),
  })
  const few = newId()
  const [root] = execution
  const runs = [
    ...both.map((one) => ({ ...one, id: one.id ?? of(execution, one.i), parent: root })),
    ...indexes.slice(0, 11).map((i) => ({ i, of: 1, when: i, id: i ? newId() : few, parent: few })),
  ]
  for (const roots of [true, false]) {
    await db.execution.createMany({
      data: runs
        .filter(({ id, parent }) => (id === parent) === roots)
        .map((one) => ({
          id: one.id,
          ...mine,
          agentId: of(agent, one.of),
          agentOrganizationId: organizationId,
          agentVersion: 1,
          userId: of(user, one.i),
          chatId: of(chat, one.of),
          sessionId: of(session, one.of),
          spaceId: of(space, one.of),
          taskId: of(task, one.of),
          missionId: of(mission, one.of),
          message: 'm',
          mediaIds: [],
          parentExecutionId: roots ? null : one.parent!,
          rootExecutionId: one.parent!,
          depth: roots ? 0 : 1,
          preview: 'm',
          status: 'completed',
          result: 'r',
          queueSeq: one.when + 1,
          terminalSeq: 500,
          completedAt: at(one.when),
          ...times(one.when),
        })),
    })
  }
  await db.message.createMany({
    data: runs.map((one) => ({
      id: newId(),
      ...mine,
      chatId: of(chat, one.of),
      sessionId: of(session, one.of),
      executionId: one.id,
      position: one.when,
      role: 'user',
      content: 'm',
      toolCalls: [],
      createdAt: at(one.when),
    })),
  })
  await db.$executeRaw`UPDATE "Session" SET "messageCount" =
    (SELECT count(*) FROM "Message" m WHERE m."sessionId" = "Session"."id") WHERE "organizationId" = ${organizationId}`
  await db.approval.createMany({
    data: both.map((one) => ({
      id: newId(),
      ...mine,
      executionId: of(execution, one.of),
      chatId: of(chat, one.of),
      step: one.id ? 2 : 1,
      position: one.i,
      toolUseId: 'x',
      tool: 't',
      input: '{}',
      status: 'denied',
      decidedBy: of(user, one.i),
      createdAt: at(one.when),
      expiresAt: at(one.when),
      decidedAt: at(one.when),
    })),
  })
  const events = JSON.stringify([{ step: 1, text: 'ab', lengths: [1, 1] }])
  await db.executionEvent.createMany({
    data: both.map((one) => ({
      executionId: of(execution, one.of),
      firstSeq: one.id ? 10 + 2 * one.i : 2,
      lastSeq: one.id ? 11 + 2 * one.i : 3,
      at: at(one.i),
      events,
    })),
  })
  await db.spaceFile.createMany({
    data: both.map((one) => ({
      ...mine,
      spaceId: of(space, one.of),
      path: one.id ? `many/${one.i}` : 'one',
      content: Buffer.from('x'),
      size: 1,
      updatedBy: userId,
      updatedAt: at(one.i),
    })),
  })
  await db.media.createMany({
    data: indexes.map((i) => ({
      id: newId(),
      ...mine,
      userId: of(user, i),
      name: 'f',
      mimeType: 'text/plain',
      size: 1,
      createdAt: at(i),
    })),
  })
  await db.usageDay.createMany({
    data: indexes.map((i) => ({
      ...mine,
      date: i < 10 ? '2026-01-01' : '2026-01-02',
      agentId: of(agent, i),
      model: 'm',
      executions: 1,
      failed: 0,
      inputTokens: 1n,
      outputTokens: 1n,
    })),
  })
  const [Agent, Chat, Execution, Mission, Space, Task] = [agent, chat, execution, mission, space, task].map((list) =>
    of(list, 0),
  ) as [string, string, string, string, string, string]
  const webhook = ids()
  const bytes = new Uint8Array(1)
  const place = { position: 0, sequence: 0 }
  await db.webhook.createMany({
    data: indexes.map((i) => ({
      id: of(webhook, i),
      ...mine,
      ownerId: of(user, i),
      url: bytes,
      shownUrl: 'x',
      description: 'd',
      events: [],
      enabled: false,
      format: 'standard',
      includeContent: false,
      secret: bytes,
      ...place,
      ...times(i),
    })),
  })
  const Webhook = of(webhook, 0)
  await db.webhookDelivery.createMany({
    data: [...indexes.map(() => Webhook), ...webhook].map((webhookId, i) => ({
      id: newId(),
      ...mine,
      webhookId,
      ...place,
      event: 'task.created',
      subjectId: 'x',
      status: 'delivered',
      createdAt: at(i),
    })),
  })
  return { Agent, Chat, Execution, Mission, Space, Task, Webhook, few }
}
