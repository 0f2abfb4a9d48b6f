import { randomUUID } from 'node:crypto'
import type { Transporter } from 'nodemailer'
import type { Logger } from 'pino'
import { onceDone } from '../lib/once.ts'
import { raceTimeout } from '../lib/race-abort.ts'
import { scrubber } from '../lib/scrub.ts'
import { percentDecoded } from '../lib/text.ts'
import type { Pause } from '../pause.ts'
import type { Settings } from '../settings.ts'

/** A mail in plain text. */
type Mail = { to: string; subject: string; text: string }

export type Mailer = {
  /** Sends a mail without waiting for it; a failure is logged, without the text of the mail. */
  send(mail: Mail): void
  /** Waits for mails in progress, but not for a mail server that hangs. */
  stop(): Promise<void>
}

/** Waits before a mail is sent again (ms). Servers that delay mails of unknown senders accept them after minutes. */
const RETRY_AFTER = [2_000, 30_000, 300_000]
/** Maximum time that shutdown waits for mails in progress (ms). */
const PATIENCE = 5_000

/** An error of the mail client. A server's answer has a code. */
type Failure = Error & { code?: string; responseCode?: number; command?: string }

/** Returns whether the mail server has refused a mail for good: its answer is a 5xx. */
const isFinal = (error: unknown): boolean => Number((error as Failure).responseCode) >= 500

/** Returns whether the mail server answered at all. One that delays a mail of an unknown sender does. */
const isAnswered = (error: unknown): boolean => (error as Failure).responseCode !== undefined

/** Settings to check, by the message of a failure. */
const ADVICE: readonly (readonly [message: RegExp, advice: string])[] = [
  [/certificate/i, 'its certificate is not accepted: set NODE_EXTRA_CA_CERTS to the file of its authority'],
  [
    /wrong version number/i,
    'it does not expect encryption at once: check the port of SMTP_URL, or begin it with smtp://',
  ],
  [/^Greeting never received/, 'it says nothing: check the port of SMTP_URL, or begin it with smtps://'],
]

const adviceOf = (error: unknown): string =>
  ADVICE.find(([message]) => message.test((error as Error).message))?.[1] ?? 'check SMTP_URL'

/**
 * Returns the facts of a failure for the log. Mail servers may quote the login or the mail, whose links are secret, so
 * these are removed.
 */
function describeFailure(error: unknown, { text }: Mail, { username, password }: URL): object {
  const [user, pass] = [percentDecoded(username), percentDecoded(password)]
  const logins = [pass, `\0${user}\0${pass}`].flatMap((login) => [login, Buffer.from(login).toString('base64')])
  const links = text.match(/https?:\S+/g) ?? []
  const codes = links.map((link) => link.split('#', 2)[1] ?? '')
  const clean = scrubber([password, ...logins, ...text.split('\n'), ...links, ...codes])
  const { message, code, responseCode, command } = error as Failure
  return { message: clean(message, true), code, responseCode, command }
}

/** Returns the sender address of mails: MAIL_FROM, else an address at the host of PUBLIC_URL. */
const senderOf = ({ MAIL_FROM, PUBLIC_URL }: Settings): string =>
  MAIL_FROM ?? `Muster <no-reply@${PUBLIC_URL ? new URL(PUBLIC_URL).hostname : 'localhost'}>`

/** Creates an id of a mail, at the host of its sender. Mail servers drop a second mail with the same id. */
const newMessageId = (sender: string): string =>
  `<${randomUUID()}@${/@([^\s@<>"]+)>?\s*$/.exec(sender)?.[1] ?? 'localhost'}>`

/** Creates the mailer for SMTP_URL; null without SMTP_URL. A paused server sends no mails. */
export function createMailer(settings: Settings, log: Logger, pause: Pick<Pause, 'isPaused'>): Mailer | null {
  const { SMTP_URL: url } = settings
  if (url === undefined) return null
  const stopping = new AbortController()
  const sending = new Set<Promise<void>>()
  const from = senderOf(settings)
  const login = new URL(url)
  let transport: Transporter | undefined
  // Loaded with the first mail.
  const open = onceDone(async () => {
    const { createTransport } = await import('nodemailer')
    // Its timeouts are those of RFC 5321: a mail whose server takes its time to check it must not be sent again.
    transport = createTransport({ url, pool: false }, { from })
    return transport
  })

  async function deliver(mail: Mail): Promise<void> {
    // The answer to an accepted mail may be lost.
    const messageId = newMessageId(from)
    const to = { name: '', address: mail.to }
    for (const wait of [...RETRY_AFTER, null]) {
      try {
        const mailer = await open()
        await mailer.sendMail({ ...mail, to, messageId, disableFileAccess: true, disableUrlAccess: true })
        return
      } catch (error) {
        const facts = { err: describeFailure(error, mail, login), to: mail.to, subject: mail.subject }
        if (wait === null || isFinal(error) || stopping.signal.aborted) {
          log.error(facts, `failed to send a mail: ${adviceOf(error)}`)
          return
        }
        // Such a failure rarely ends by itself, and the last attempt is minutes away.
        if (wait === RETRY_AFTER[0] && !isAnswered(error))
          log.warn(facts, `a mail is sent again later: ${adviceOf(error)}`)
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, wait)
          stopping.signal.addEventListener('abort', () => {
            clearTimeout(timer)
            resolve()
          })
        })
      }
    }
  }

  return {
    send(mail) {
      if (pause.isPaused())
        return log.warn({ to: mail.to, subject: mail.subject }, 'a mail was not sent: the server is paused')
      const sent = deliver(mail).finally(() => sending.delete(sent))
      sending.add(sent)
    },
    async stop() {
      stopping.abort()
      await raceTimeout(Promise.all(sending), PATIENCE)
      if (sending.size) log.warn({ mails: sending.size }, 'mails were not sent: the mail server does not answer')
      transport?.close()
    },
  }
}
