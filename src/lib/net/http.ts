/**
 * Node's module `http`. An ES import reads all names of a module at once, and so would also load Node's `fetch` and
 * `WebSocket`. That costs a start, which uses neither, 45 ms and 4 MB (row `start` of the benchmarks).
 */
export const { createServer, STATUS_CODES } = process.getBuiltinModule('node:http')
