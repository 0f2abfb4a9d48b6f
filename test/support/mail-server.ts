import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'

/** Starts a mail server on loopback that records its mails. */
export async function startMailServer() {
  const mails: { to: string[]; text: string }[] = []
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onData(stream, session, done) {
      let text = ''
      stream.on('data', (chunk: Buffer) => {
        text += chunk
      })
      stream.on('end', () => {
        mails.push({ to: session.envelope.rcptTo.map(({ address }) => address), text: text.replaceAll('=\r\n', '') })
        done()
      })
    },
  })
  const listening = server.listen(0, '127.0.0.1')
  await once(listening, 'listening')
  const { port } = listening.address() as AddressInfo
  const url = `smtp://127.0.0.1:${port}`
  return { mails, url, [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(resolve)) }
}
