import { titleOf, type VisibleEvent } from '../events/show.ts'
import { beginningWhole } from '../lib/text.ts'
import { asText } from '../lib/unknown.ts'
import { linkOf } from './formats.ts'
import type { WebhookRow } from './service.ts'

type Text = { subject: string; text: string }

const MAX_TITLE = 200
/** Maximum number of events that a mail lists. */
const MAX_LISTED = 20

/** Returns a text as one line: one of several lines could pose as more of the mail. */
const inLine = (text: string): string =>
  beginningWhole(text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ').trim(), MAX_TITLE)

/** Writes the mail that a webhook was disabled. */
export function disabledMail(base: string, { shownUrl, description }: WebhookRow, reason: string): Text {
  const name = inLine(description || shownUrl)
  return {
    subject: `Webhook disabled: ${name}`,
    text: `The webhook ${inLine(shownUrl)} was disabled: ${reason}.

It receives no more events. Enable it again when its receiver works:
${base}/app/settings/webhooks
`,
  }
}

/** Writes the mail about approvals and failed missions. The inputs of approvals are in the console alone. */
export function notificationMail(base: string, events: readonly VisibleEvent[]): Text {
  const lines = events.slice(0, MAX_LISTED).map((event) => `- ${inLine(sentenceOf(event))}\n  ${linkOf(base, event)}`)
  const more = events.length > MAX_LISTED ? `\nAnd ${events.length - MAX_LISTED} more.\n` : ''
  const [first] = events
  return {
    subject: events.length === 1 && first ? inLine(sentenceOf(first)) : `${events.length} events need your attention`,
    text: `${lines.join('\n')}
${more}
You get this mail because of the notifications in your profile:
${base}/app/settings/profile
`,
  }
}

function sentenceOf(event: VisibleEvent): string {
  const { data, type } = event
  if (type === 'mission.run_failed') return `The mission ${titleOf(event)} failed`
  const agent = asText(data.agentName) || 'An agent'
  return `${agent} waits for your approval to call ${asText(data.tool)}`
}
