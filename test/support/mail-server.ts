import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { SMTPServer } from 'smtp-server'

/**
 * Starts a mail server on loopback that records its mails. It refuses the next recipients with the codes in `refusals`.
 * It accepts the next mails after the promises of `delays`; a rejected one drops the connection.
 */
export async function startMailServer() {
  const mails: { to: string[]; text: string }[] = []
  const refusals: number[] = []
  const delays: (() => Promise<unknown>)[] = []
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onRcptTo(_address, _session, done) {
      const responseCode = refusals.shift()
      done(responseCode ? Object.assign(new Error('Refused'), { responseCode }) : null)
    },
    onData(stream, session, done) {
      let text = ''
      stream.on('data', (chunk: Buffer) => {
        text += chunk
      })
      stream.on('end', () => {
        mails.push({ to: session.envelope.rcptTo.map(({ address }) => address), text: text.replaceAll('=\r\n', '') })
        Promise.resolve(delays.shift()?.()).then(
          () => done(),
          () => {
            for (const socket of connections) socket.destroy()
          },
        )
      })
    },
  })
  const connections = new Set<Socket>()
  server.server.on('connection', (socket) => connections.add(socket))
  const listening = server.listen(0, '127.0.0.1')
  await once(listening, 'listening')
  const { port } = listening.address() as AddressInfo
  const url = `smtp://127.0.0.1:${port}`
  return {
    mails,
    refusals,
    delays,
    url,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(resolve)),
  }
}
