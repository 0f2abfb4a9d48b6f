import { AGENT, Agent } from '../agents/graphql.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { loadRow } from '../graphql/rows.ts'
import { usage } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('UsagePeriod', schema.Period, 'Length of a period of usage')
objectFromZod('UsageTotals', schema.Totals, 'Sums of usage')
const AgentUsage = objectFromZod('AgentUsage', schema.AgentUsage, 'Usage of the runs of one agent')
objectFromZod('ModelUsage', schema.ModelUsage, 'Usage of the runs on one model')
objectFromZod('UserUsage', schema.UserUsage, 'Usage of the runs of one user')
objectFromZod('UsageEntry', schema.UsageEntry, 'Usage of the runs of a period', {
  fields: { byAgent: { rows: 20 }, byModel: { rows: 5 }, byUser: { rows: 20 } },
})

builder.objectField(AgentUsage, 'agent', (t) =>
  t.field({
    type: Agent,
    nullable: true,
    description: 'The agent; null when you cannot reach it',
    resolve: ({ agentId }, _, context, info) => loadRow(context, info, AGENT, agentId),
  }),
)

const Report = objectFromZod(
  'UsageReport',
  schema.UsageResponse.omit({ success: true }),
  'Usage of the runs of an organization',
  {
    // All days by default.
    fields: { usage: { rows: 30 } },
  },
)

builder.queryField('usage', (t) =>
  t.field({
    ...procedureExtensions(usage.get, { cost: 50 }),
    type: Report,
    args: argsFromZod(schema.GetUsage),
    resolve: (_, args, { caller }) => caller.usage.get(parseArgs(schema.GetUsage, args)),
  }),
)
