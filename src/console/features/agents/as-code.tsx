import { useState } from 'react'
import { BASE } from '../../api.ts'
import { Code } from '../../components/code.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { agents as t } from '../../texts/agents.ts'
import type { Agent } from './form.ts'

const LANGUAGES = { curl: 'curl', typescript: 'TypeScript', python: 'Python' } as const

/** Shows the same run as code for other programs. */
export function AsCode({ agent: { id } }: { agent: Agent }) {
  const [language, setLanguage] = useState<keyof typeof LANGUAGES>('curl')
  const address = location.origin + BASE
  const url = `${address}/api/v1/agents/${id}/execute`
  const code = {
    curl: `curl ${url} \\
  -H "Authorization: Bearer $MUSTER_TOKEN" \\
  -H 'Content-Type: application/json' \\
  -d '{"message": "Hello"}'`,
    typescript: `const response = await fetch('${url}', {
  method: 'POST',
  headers: {
    Authorization: \`Bearer \${process.env.MUSTER_TOKEN}\`,
    'Content-Type': 'application/json',
  },
  body: JSON.stringify({ message: 'Hello' }),
})
const { result, chatId } = await response.json()
console.log(result)`,
    python: `import os
import requests

response = requests.post(
    "${url}",
    headers={"Authorization": f"Bearer {os.environ['MUSTER_TOKEN']}"},
    json={"message": "Hello"},
)
response.raise_for_status()
print(response.json()["result"])`,
  }
  return (
    <>
      <p className="mb-3 text-soft">{t.codeHelp}</p>
      <Tabs label={t.tabs.code} tabs={LANGUAGES} value={language} onChange={setLanguage}>
        <Code text={code[language]} />
      </Tabs>
    </>
  )
}
