// A separate process: the speed of node:http on this machine without a service. Prints its address.
//
//   PUT  /<name>    stores a JSON body
//   GET, POST /<name>    parses the body, if any, and answers the stored one, serialized anew each time
//   POST /store     parses the body and inserts two rows, each committed to the disk (SQLite with synchronous=FULL, or
//                   PostgreSQL)
//   POST /relay     sends the body to the model and pipes its stream back
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import Sqlite from 'better-sqlite3'
import { Pool } from 'pg'

const { values } = parseArgs({ options: { database: { type: 'string' }, model: { type: 'string' } } })

type Insert = (role: string, content: string) => unknown

function openSqlite(file: string): Insert {
  const database = new Sqlite(file)
  database.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE message (id INTEGER PRIMARY KEY, role TEXT NOT NULL, content TEXT NOT NULL, at INTEGER NOT NULL)`)
  const insert = database.prepare('INSERT INTO message (role, content, at) VALUES (?, ?, ?)')
  return (role, content) => insert.run(role, content, Date.now())
}

async function openPostgresql(connectionString: string): Promise<Insert> {
  const pool = new Pool({ connectionString, max: 10 })
  await pool.query(`
    CREATE TABLE message (id SERIAL PRIMARY KEY, role TEXT NOT NULL, content TEXT NOT NULL, at BIGINT NOT NULL)`)
  const text = 'INSERT INTO message (role, content, at) VALUES ($1, $2, $3)'
  return (role, content) => pool.query({ name: 'insert', text, values: [role, content, Date.now()] })
}

const { database = '' } = values
const insert = await (database.startsWith('postgres') ? openPostgresql(database) : openSqlite(database))
const kept = new Map<string, unknown>()
// Gives idle connections up before the model's server closes them after 5 s.
const agent = new Agent({ keepAlive: true, timeout: 3_000 })

function relay(req: IncomingMessage, res: ServerResponse): void {
  const headers = { 'content-type': 'application/json' }
  const up = request(`${values.model}/chat/completions`, { method: 'POST', headers, agent }, (reply) => {
    res.writeHead(reply.statusCode ?? 502, { 'content-type': 'text/event-stream' })
    reply.pipe(res)
  })
  up.on('error', () => res.destroy())
  req.pipe(up)
}

const server = createServer(async (req, res) => {
  const name = req.url ?? '/'
  if (name === '/relay') return relay(req, res)
  const body = req.method === 'GET' ? null : ((await json(req)) as { message?: string })
  if (req.method === 'PUT') kept.set(name, body)
  if (name === '/store') {
    await insert('user', body?.message ?? '')
    await insert('assistant', body?.message ?? '')
  }
  const answer = Buffer.from(JSON.stringify(kept.get(name) ?? { success: true }))
  res.writeHead(200, { 'content-type': 'application/json; charset=utf-8', 'content-length': answer.length })
  res.end(answer)
})
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }))
})
