Tiresias=None
