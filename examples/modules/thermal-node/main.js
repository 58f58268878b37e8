// A module of Layercake in Node.js: it finds out how warm nodes are, and cools those that are too warm.
// The head starts it as `node main.js --socket PATH --instance NAME`, and says what it may attach with in LAYERCAKE_MODULE_COOKIE.
'use strict'

const path = require('node:path')
const { parseArgs } = require('node:util')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const API_VERSION = 2
const PROTO = process.env.LAYERCAKE_PROTO || path.join(__dirname, '../../../layercake/moduleapi/module.proto')
const DEFAULTS = { limit_c: 70, room_c: 20 }

const { socket, instance } = parseArgs({ options: { socket: { type: 'string' }, instance: { type: 'string' } } }).values
const cookie = process.env.LAYERCAKE_MODULE_COOKIE
delete process.env.LAYERCAKE_MODULE_COOKIE

const nodes = new Map()       // id -> {name, celsius, fans}
const timers = new Map()      // the number of an attempt -> its timer
let settings = DEFAULTS

const definition = loader.loadSync(PROTO, { keepCase: true, longs: String, defaults: true, oneofs: true })
const { ModuleHost } = grpc.loadPackageDefinition(definition).layercake.module.v1
const stream = new ModuleHost(`unix:${socket}`, grpc.credentials.createInsecure()).Attach()
const say = (message) => stream.write(message)

function warmth (node) {
  return { warmth: node.celsius > settings.limit_c ? 'HIGH' : 'NORMAL' }
}

// The mutations: each carries out one attempt and gives back what it has found out about the node, or throws.

const mutations = {
  async 'warmth-discover' (node) {
    return warmth(node)
  },

  async 'warmth-cool' (node, attempt) {
    node.fans = 100
    await new Promise((resolve) => timers.set(attempt.id, setTimeout(resolve, 100)))
    node.celsius = settings.room_c
    say({ event: { node: attempt.node, kind: 'warmth.cooled', text: `${node.name} is at ${node.celsius} degrees again` } })
    return warmth(node)
  }
}

const calls = {
  'warmth.read' (node) {
    return { celsius: node.celsius, fans: node.fans }
  }
}

function find (id) {
  if (!nodes.has(id)) throw new Error('cannot find the node: the head has not told of it')
  return nodes.get(id)
}

async function mutate (attempt) {
  try {
    say({ result: { id: attempt.id, ok: true, values: await mutations[attempt.mutation](find(attempt.node), attempt) } })
  } catch (error) {
    say({ result: { id: attempt.id, ok: false, error: `cannot ${attempt.mutation}: ${error.message}` } })
  }
  timers.delete(attempt.id)
}

function answer (call) {
  try {
    const found = calls[call.method](find(JSON.parse(call.json).node))
    say({ answer: { id: call.id, ok: true, json: Buffer.from(JSON.stringify(found)) } })
  } catch (error) {
    say({ answer: { id: call.id, ok: false, error: error.message } })
  }
}

// What the head says, in its order: settings, the nodes and their states, ready; then whatever happens.

const heard = {
  settings (told) { settings = { ...DEFAULTS, ...JSON.parse(told.json) } },
  node_changed (told) {
    const known = nodes.get(told.node) || { celsius: 85, fans: 30 }
    nodes.set(told.node, { ...known, name: JSON.parse(told.json).name })
  },
  node_removed (told) { nodes.delete(told.node) },
  ready () { say({ health: 'running' }) },
  mutate,
  cancel (told) { clearTimeout(timers.get(told.id)) },
  call: answer,
  stop () { stream.end() }
}

stream.on('data', (message) => heard[message.kind]?.(message[message.kind]))
stream.on('end', () => process.exit(0))
stream.on('error', (error) => { console.error(`the head went away: ${error.details || error.message}`); process.exit(1) })
say({ hello: { version: API_VERSION, service: 'warmth', instance, cookie } })
