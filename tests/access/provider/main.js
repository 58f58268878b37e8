// An OpenID provider over TLS: node main.js PORT CERTIFICATE KEY. Who logs in as ann.physics+staff is ann, in these two groups.
import {createServer} from "node:https";
import {generateKeyPairSync} from "node:crypto";
import {readFileSync} from "node:fs";
import Provider from "oidc-provider";

const [port, certificate, key] = process.argv.slice(2);
const issuer = `https://127.0.0.1:${port}`;
const signing = generateKeyPairSync("rsa", {modulusLength: 2048}).privateKey.export({format: "jwk"});

const provider = new Provider(issuer, {
  clients: [{client_id: "layercake", token_endpoint_auth_method: "none", application_type: "native",
             redirect_uris: ["http://127.0.0.1/done"], response_types: ["code"], grant_types: ["authorization_code"]}],
  claims: {openid: ["sub", "preferred_username", "groups"]},
  conformIdTokenClaims: false,
  findAccount: async (_, id) => ({accountId: id, claims: async () => ({
    sub: id, preferred_username: id.split(".")[0], groups: (id.split(".")[1] ?? "").split("+")})}),
  jwks: {keys: [{...signing, use: "sig", alg: "RS256", kid: "first"}]},
  cookies: {keys: ["a test"]},
  pkce: {required: () => true},
});
createServer({cert: readFileSync(certificate), key: readFileSync(key)}, provider.callback())
  .listen(Number(port), "127.0.0.1", () => console.log("ready"));
