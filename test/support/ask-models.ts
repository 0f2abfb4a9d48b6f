import { createModels } from '../../src/executions/engine/models/models.ts'
import { readSettings } from '../../src/settings.ts'

// A separate process: asks a model of each kind of provider at an address, and prints the failure of each.
const [address = ''] = process.argv.slice(2)
const models = createModels(
  readSettings({
    OPENAI_BASE_URL: address,
    OPENAI_RESPONSES_BASE_URL: address,
    OPENAI_API_KEY: 'key',
    ANTHROPIC_BASE_URL: address,
    ANTHROPIC_API_KEY: 'key',
    GOOGLE_BASE_URL: address,
    GOOGLE_GENERATIVE_AI_API_KEY: 'key',
  }),
)
const causes: string[] = []
for (const name of ['compatible/m', 'openai/m', 'anthropic/m', 'google/gemini-x']) {
  const { model } = await models.resolve(name, 'organization')
  const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Hello' }] }]
  try {
    for await (const _ of (await model.doStream({ prompt })).stream);
    causes.push('')
  } catch (error) {
    causes.push(models.describeError(error, 'organization'))
  }
}
console.log(JSON.stringify(causes))
process.exit()
