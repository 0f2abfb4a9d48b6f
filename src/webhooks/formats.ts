import { titleOf, type VisibleEvent } from '../events/show.ts'
import { beginningWhole } from '../lib/text.ts'
import { asText } from '../lib/unknown.ts'

export type Format = 'standard' | 'slack' | 'discord' | 'teams'

/** Maximum length of a part of a message (characters). Discord allows 2,000 in all. */
const MAX_TITLE = 200
const MAX_TEXT = 1_000

const HEADLINES: Readonly<Record<string, string>> = {
  'task.created': 'Task created',
  'task.updated': 'Task updated',
  'task.status_changed': 'Task moved',
  'task.completed': 'Task completed',
  'task.assigned': 'Task assigned',
  'execution.started': 'Run started',
  'execution.completed': 'Run completed',
  'execution.failed': 'Run failed',
  'execution.cancelled': 'Run cancelled',
  'execution.waiting': 'Run waits for an approval',
  'approval.created': 'Approval needed',
  'approval.decided': 'Approval decided',
  'approval.expired': 'Approval expired',
  'chat.needs_attention': 'Chat needs attention',
  'mission.run_failed': 'Run of a mission failed',
  'mission.paused': 'Mission paused',
  'mission.skipped': 'Mission skipped a run',
  'agent.created': 'Agent created',
  'agent.updated': 'Agent updated',
  'agent.archived': 'Agent archived',
  'webhook.disabled': 'Webhook disabled',
  'webhook.test': 'Test of a webhook',
}

const PAGES: Readonly<Record<string, (id: string) => string>> = {
  execution: (id) => `runs/${id}`,
  approval: () => 'approvals',
  chat: (id) => `chats/${id}`,
  task: () => 'tasks',
  mission: (id) => `missions/${id}`,
  agent: (id) => `agents/${id}`,
}

/** Parts of a message that a person reads. */
type Message = { headline: string; title: string; lines: string[]; link: string }

/** Returns the page of the console that shows the subject of an event. */
export function linkOf(base: string, { type, data }: VisibleEvent): string {
  const page = PAGES[type.split('.', 1)[0] ?? '']?.(encodeURIComponent(asText(data.id)))
  return `${base}/app/${page ?? 'settings/webhooks'}`
}

function messageOf(base: string, event: VisibleEvent): Message {
  const { data } = event
  const facts = [
    ['Status', data.status],
    ['Error', data.error ?? data.lastError ?? data.errorCode ?? data.disabledReason ?? data.pauseReason],
    ['Tool', data.tool === titleOf(event) ? undefined : data.tool],
    ['Result', data.result],
    ['Input', data.input],
  ] as const
  return {
    headline: HEADLINES[event.type] ?? event.type,
    title: beginningWhole(titleOf(event) || asText(data.id), MAX_TITLE),
    lines: facts.flatMap(([name, value]) => {
      const text = typeof value === 'string' ? value : value == null ? '' : JSON.stringify(value)
      return text ? [`${name}: ${beginningWhole(text, MAX_TEXT)}`] : []
    }),
    link: linkOf(base, event),
  }
}

/** Escapes the characters that Slack reads as markup. */
const forSlack = (text: string): string => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;')

/** Escapes Markdown, so that a title cannot pose as a link. */
const forMarkdown = (text: string): string => text.replace(/[\\`*_{}[\]()<>#|~@]/g, '\\$&')

/** Returns the body that is sent for an event. */
export function bodyOf(format: Format, base: string, event: VisibleEvent): object {
  if (format === 'standard') return event
  const { headline, title, lines, link } = messageOf(base, event)
  switch (format) {
    case 'slack': {
      const text = [`*${headline}*: ${forSlack(title)}`, ...lines.map(forSlack)].join('\n')
      return {
        text: `${headline}: ${forSlack(title)}`,
        blocks: [
          { type: 'section', text: { type: 'mrkdwn', text: beginningWhole(text, 2_900) } },
          {
            type: 'actions',
            elements: [{ type: 'button', text: { type: 'plain_text', text: 'Open in Muster' }, url: link }],
          },
        ],
      }
    }
    case 'discord':
      return {
        content: beginningWhole(`**${headline}**: ${forMarkdown(title)}`, 2_000),
        embeds: [
          {
            title: beginningWhole(title, 256),
            url: link,
            description: beginningWhole(lines.map(forMarkdown).join('\n'), 4_000),
            timestamp: event.timestamp,
          },
        ],
        // The text of an event mentions no user of the chat service.
        allowed_mentions: { parse: [] },
      }
    case 'teams':
      return {
        type: 'message',
        attachments: [
          {
            contentType: 'application/vnd.microsoft.card.adaptive',
            contentUrl: null,
            content: {
              $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
              type: 'AdaptiveCard',
              version: '1.4',
              body: [
                { type: 'TextBlock', text: headline, weight: 'Bolder', size: 'Medium', wrap: true },
                { type: 'TextBlock', text: forMarkdown(title), wrap: true },
                ...lines.map((line) => ({ type: 'TextBlock', text: forMarkdown(line), wrap: true, isSubtle: true })),
              ],
              actions: [{ type: 'Action.OpenUrl', title: 'Open in Muster', url: link }],
            },
          },
        ],
      }
  }
}
