// A run of AG-UI's client. A call that waits for an approval interrupts it, and is approved here.
//
//   TOKEN=mst_… npx node examples/ag-ui.ts
import { HttpAgent } from '@ag-ui/client'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const headers = { Authorization: `Bearer ${token}` }

const { agents } = (await (await fetch(`${url}/api/v1/agents?limit=1`, { headers })).json()) as {
  agents: { id: string }[]
}
if (!agents[0]) throw new Error('There is no agent: run examples/chat.ts first, or create one in the console')

const agent = new HttpAgent({ url: `${url}/api/v1/agents/${agents[0].id}/ag-ui`, headers })
agent.addMessage({ id: crypto.randomUUID(), role: 'user', content: 'Hello' })
let asked: string[] = []
do {
  const resume = asked.map((interruptId) => ({ interruptId, status: 'resolved' as const, payload: { approved: true } }))
  asked = []
  await agent.runAgent(resume.length ? { resume } : {}, {
    onRunFinishedEvent(event) {
      if (event.outcome === 'interrupt') asked = event.interrupts.map(({ id }) => id)
    },
  })
} while (asked.length)
console.log(agent.messages.at(-1)?.content)
