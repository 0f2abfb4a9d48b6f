/**
 * Node's module `http`. An ES import reads all names of a module at once, and so would also load Node's `fetch` and
 * `WebSocket`: 45 ms and 4 MB of a start that uses neither (row `start` of the benchmarks).
 */
export const { createServer, STATUS_CODES } = process.getBuiltinModule('node:http')
