import { type FieldNode, type OperationDefinitionNode, valueFromASTUntyped } from 'graphql'

/** Values as the client wrote them, in documents that may be invalid. */
export type Values = Readonly<Record<string, unknown>>

/** Returns the variables of an operation, with defaults for those that were not sent. */
export const variablesOf = ({ variableDefinitions = [] }: OperationDefinitionNode, sent: Values): Values => ({
  ...Object.fromEntries(
    variableDefinitions.flatMap(({ variable, defaultValue }) =>
      defaultValue ? [[variable.name.value, valueFromASTUntyped(defaultValue)]] : [],
    ),
  ),
  ...sent,
})

/** Returns the arguments of a field. */
export function argumentsOf({ arguments: given = [] }: FieldNode, variables: Values): Values {
  // Without a prototype, so that inherited names such as `constructor` are not variables.
  const known = Object.assign(Object.create(null), variables)
  return Object.fromEntries(given.map(({ name, value }) => [name.value, valueFromASTUntyped(value, known)]))
}
