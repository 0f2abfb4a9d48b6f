import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

/** Encodes a value in DER: tag, length, value. */
function der(tag: number, ...contents: Uint8Array[]): Buffer {
  const content = Buffer.concat(contents)
  const { length } = content
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}

const sequence = (...contents: Uint8Array[]) => der(0x30, ...contents)
const bytes = (hex: string) => Buffer.from(hex, 'hex')
const oid = (hex: string) => der(0x06, bytes(hex))
const time = (date: Date) => der(0x18, Buffer.from(`${date.toISOString().replace(/[-:T]/g, '').slice(0, 14)}Z`))

const ECDSA_WITH_SHA256 = sequence(oid('2a8648ce3d040302'))
const DAY = 24 * 60 * 60 * 1000

/** Creates a key and a self-signed certificate in PEM for these DNS names and 127.0.0.1, valid for a day. */
export function createCertificate(...names: string[]): { key: string; cert: string } {
  return create('Muster tests', names)
}

/** Creates a certificate of an authority that nobody has, as a company's proxy that opens TLS sends it. */
export const createIssuedCertificate = (...names: string[]) => create('An authority', names)

function create(issuer: string, names: readonly string[]): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const nameOf = (name: string) => sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from(name)))))
  const alternatives = [...names.map((name) => der(0x82, Buffer.from(name))), der(0x87, Buffer.from([127, 0, 0, 1]))]
  const isAuthority = sequence(oid('551d13'), der(0x04, sequence(der(0x01, bytes('ff')))))
  const content = sequence(
    der(0xa0, der(0x02, bytes('02'))),
    der(0x02, Buffer.concat([bytes('01'), randomBytes(8)])),
    ECDSA_WITH_SHA256,
    nameOf(issuer),
    sequence(time(new Date(Date.now() - DAY)), time(new Date(Date.now() + DAY))),
    nameOf('Muster tests'),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(isAuthority, sequence(oid('551d11'), der(0x04, sequence(...alternatives))))),
  )
  const signature = der(0x03, bytes('00'), sign('sha256', content, privateKey))
  const text = sequence(content, ECDSA_WITH_SHA256, signature).toString('base64')
  const cert = `-----BEGIN CERTIFICATE-----\n${text.match(/.{1,64}/g)!.join('\n')}\n-----END CERTIFICATE-----\n`
  return { cert, key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string }
}
