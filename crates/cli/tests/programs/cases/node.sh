# program: node
# needs: node=nodejs
# version: node --version
# compares: output and files of a script that uses fs, its promises, streams and children
exec node "$APPLICATIONS/node.js" "$1"
